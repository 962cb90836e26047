package playbook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"rouse/agent/model"
	"rouse/internal/domain"
	"rouse/internal/text"
)

// maxEach is the maximum number of items of one each.
const maxEach = 10_000

const (
	onErrorFail     = "fail"
	onErrorContinue = "continue"
)

// Call is one entry of a playbook.
type Call struct {
	Name    string         // name of the tool
	With    map[string]any // arguments, with templates and expressions at any depth
	Save    string         // name for the result in the data
	If      string         // an expression; false skips the call
	Each    any            // a list, or an expression for a list; the call is made for each item
	OnError string         // fail (default) or continue
	// MustSucceed makes an exit code other than 0, or a status of 400 and above, a failure. If nil,
	// it does so unless Expect names the codes.
	MustSucceed *bool
	Expect      Expect
	Line        int // line in the configuration, for messages
}

// Options holds a playbook, the data of its templates, and callbacks.
type Options struct {
	Calls []Call
	Data  map[string]any
	// Recorded returns the envelope of a call from an earlier attempt, and reports whether an
	// earlier attempt started the call. Optional.
	Recorded func(key string) (envelope json.RawMessage, begun bool)
	// Forget is called if the recorded result of a call does not meet its expectation. The call is
	// made again if its attempt failed because of the result. Optional.
	Forget func(key string)
	// Skipped reports whether the owner decided to skip a call. Optional.
	Skipped func(key string) bool
	// Redact removes secrets from texts before a summary or a message truncates them. Optional.
	Redact func(text string) string
}

// RemovableItem is an item of an each that may be removed, for example a file. It keeps its
// position, because the keys of calls are positions.
type RemovableItem interface{ Removed() bool }

// Provider makes the calls, one in each turn. It serves one attempt of one run.
type Provider struct {
	calls   []Call
	data    map[string]any
	tally   []tally
	index   int   // index of the next call, or of the call that awaits its result
	items   []any // items of its each; nil if it has none or before the evaluation
	item    int
	pending string // key of the call that awaits its result, or ""

	incomplete string // the first call that left out rows although no expect accepts it

	recorded func(key string) (json.RawMessage, bool)
	forget   func(key string)
	skipped  func(key string) bool
	redact   func(text string) string
}

// New returns the provider of one attempt. It returns an error if a call has a mistake.
func New(o Options) (*Provider, error) {
	if len(o.Calls) == 0 {
		return nil, errors.New("the playbook has no calls")
	}
	if problems := Check(o.Calls, slices.Sorted(maps.Keys(o.Data))); len(problems) > 0 {
		return nil, errors.Join(problems...)
	}

	// A copy, because results are saved in it.
	data := map[string]any{}
	maps.Copy(data, o.Data)
	p := &Provider{calls: o.Calls, data: data, recorded: o.Recorded, forget: o.Forget, skipped: o.Skipped, redact: o.Redact}
	if p.recorded == nil {
		p.recorded = func(string) (json.RawMessage, bool) { return nil, false }
	}
	if p.redact == nil {
		p.redact = func(text string) string { return text }
	}

	for _, c := range o.Calls {
		p.tally = append(p.tally, tally{name: c.Name})
	}

	return p, nil
}

// Stream implements model.Provider. It emits one call or the end.
func (p *Provider) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if ctx.Err() != nil {
			yield(model.Event{}, context.Cause(ctx))
			return
		}

		call, err := p.nextCall(r)
		switch {
		case err != nil: // the run ends with an outcome, because a provider's error would be a failed turn
			end := &model.End{Outcome: domain.OutcomeError, Error: err.Error()}
			if failed, ok := errors.AsType[*callError](err); ok {
				end.Kind = failed.kind
			}
			yield(model.Event{End: end}, nil)
		case call == nil:
			end := &model.End{Outcome: domain.OutcomeSuccess, Summary: p.Summary(), Error: p.incomplete}
			if end.Error != "" {
				end.Outcome = domain.OutcomePartial
			}
			yield(model.Event{End: end}, nil)
		default:
			yield(model.Event{Call: call}, nil)
		}
	}
}

// Summary returns a summary of the calls made so far.
func (p *Provider) Summary() string {
	reached := p.tally[:p.index]
	if p.index < len(p.tally) && p.tally[p.index].begun() {
		reached = p.tally[:p.index+1]
	}
	return summary(reached)
}

// nextCall records the result of the last call and returns the next call, or nil after the last.
func (p *Provider) nextCall(r model.Request) (*model.Call, error) {
	if p.pending != "" {
		if err := p.recordResult(r.Results); err != nil {
			return nil, err
		}
	}

	for p.index < len(p.calls) {
		call, err := p.currentCall()
		if call != nil || err != nil {
			return call, err
		}
	}

	return nil, nil
}

func label(i int, c Call) string {
	about := c.Name
	switch {
	case c.Line > 0 && c.Name == "":
		about = fmt.Sprintf("line %d", c.Line)
	case c.Line > 0:
		about = fmt.Sprintf("%s, line %d", c.Name, c.Line)
	case c.Name == "":
		return fmt.Sprintf("call %d", i+1)
	}

	return fmt.Sprintf("call %d (%s)", i+1, about)
}

func (p *Provider) label() string {
	text := label(p.index, p.calls[p.index])
	if p.items != nil {
		text += fmt.Sprintf(" for item %d", p.item+1)
	}
	return text
}

func (p *Provider) recordResult(results []model.Result) error {
	at := slices.IndexFunc(results, func(r model.Result) bool { return r.Call.Key == p.pending })
	if at < 0 {
		return fmt.Errorf("%s gave no result", p.label())
	}

	e, result, err := readEnvelope(results[at].Envelope)
	if err != nil {
		return fmt.Errorf("the result of %s cannot be read: %w", p.label(), err)
	}

	if e.OK {
		why, err := p.unmet(result)
		if err != nil {
			return err
		}
		if why != "" {
			e.OK, e.Kind, e.Message = false, kindUnmet, why
		}
	}

	c, t := &p.calls[p.index], &p.tally[p.index]
	switch {
	case e.OK:
		t.made++
		t.about, t.detail = p.describe(c.Name, result)
		p.noteLeftOut(result)
	case c.OnError != onErrorContinue && slices.Contains([]string{kindUnmet, "execution_error"}, e.Kind): // these kinds add no information
		return &callError{c.Name + " " + e.Kind, fmt.Sprintf("%s failed: %s", p.label(), e.Message)}
	case c.OnError != onErrorContinue:
		return &callError{c.Name + " " + e.Kind, fmt.Sprintf("%s failed: %s: %s", p.label(), e.Kind, e.Message)}
	default:
		t.failed++
		t.kind = e.Kind
		if about, what := p.describe(c.Name, result); what != "" {
			t.failure = about + ": " + what + ","
		}
		result = nil // later templates get nil, not the result of another item
	}

	if c.Save != "" {
		p.data[c.Save] = result
	}

	p.advance()
	return nil
}

// noteLeftOut records the rows that the current call left out. If the call has an expect.that, that
// expression has checked and accepted the result.
func (p *Provider) noteLeftOut(result any) {
	m, _ := result.(map[string]any)
	n, _ := m[rowsRejected].(int64)
	p.tally[p.index].leftOut += n
	if n == 0 || p.incomplete != "" || p.calls[p.index].Expect.That != "" {
		return
	}

	p.incomplete = fmt.Sprintf("%s left out %s", p.label(), countRows(n))
	if why, _ := m["sample_errors"].([]any); len(why) > 0 {
		p.incomplete += ": " + text.Truncate(p.redact(show(why[0])), maxShown)
	}
	p.incomplete += ". Correct the file and import it again, or accept this with expect: {that: result.rows_imported > 0}"
}

// callError is the failure of a call. Its kind contains the tool and the kind of the error, without
// details.
type callError struct{ kind, text string }

func (e *callError) Error() string { return e.text }

type envelope struct {
	OK      bool            `json:"ok"`
	Kind    string          `json:"kind"`
	Message string          `json:"message"`
	Result  json.RawMessage `json:"result"`
}

func readEnvelope(raw json.RawMessage) (e envelope, result any, err error) {
	if err = json.Unmarshal(raw, &e); err == nil {
		result, err = decode(e.Result)
	}
	return e, result, err
}

// failedBefore reports whether the current call succeeded earlier but did not meet its expectation.
func (p *Provider) failedBefore(key string) bool {
	raw, _ := p.recorded(key)
	if len(raw) == 0 {
		return false
	}

	e, result, err := readEnvelope(raw)
	if err != nil || !e.OK {
		return false // handled by the loop
	}
	why, err := p.unmet(result)
	return why != "" || err != nil
}

func (p *Provider) advance() {
	p.pending = ""
	if p.item+1 < len(p.items) {
		p.item++
		return
	}

	// Later templates can use the saved name even if the call was not made.
	if save := p.calls[p.index].Save; save != "" {
		if _, ok := p.data[save]; !ok {
			p.data[save] = nil
		}
	}

	p.index, p.items, p.item = p.index+1, nil, 0
	delete(p.data, "item")
	delete(p.data, "index")
}

func (p *Provider) currentCall() (*model.Call, error) {
	c := &p.calls[p.index]
	key := fmt.Sprintf("p%d", p.index+1)
	if c.Each != nil {
		// Evaluated once: results saved by the calls of this each must not change its list.
		if p.items == nil {
			items, err := p.evaluateEach(c)
			if err != nil {
				return nil, err
			}

			if len(items) == 0 {
				p.advance()
				return nil, nil
			}

			p.items = items
		}

		p.data["item"], p.data["index"] = p.items[p.item], p.item
		key = fmt.Sprintf("%s.%d", key, p.item+1) // recorded in ledgers, so it must not change
	}

	// The condition of a removed item is not evaluated, because it may read the item.
	wanted := !p.removed(key) && (p.skipped == nil || !p.skipped(key))
	if wanted {
		var err error
		if wanted, err = p.evaluateIf(c); err != nil {
			return nil, err
		}
	}

	if !wanted {
		p.tally[p.index].skipped++
		p.advance()
		return nil, nil
	}

	args, err := p.arguments(c)
	if err != nil {
		return nil, err
	}

	if p.forget != nil && p.failedBefore(key) {
		p.forget(key)
	}

	p.pending = key
	return &model.Call{ID: key, Key: key, Name: c.Name, Args: args}, nil
}

// removed reports whether the current item was removed before an earlier attempt made its call.
func (p *Provider) removed(key string) bool {
	if p.items == nil {
		return false
	}
	item, ok := p.items[p.item].(RemovableItem)
	_, begun := p.recorded(key)
	return ok && item.Removed() && !begun
}

func (p *Provider) evaluateIf(c *Call) (bool, error) {
	if c.If == "" {
		return true, nil
	}

	v, err := evaluate(p.label()+" if", c.If, p.data)
	if err != nil {
		return false, err
	}

	b, ok := v.(bool)
	if !ok {
		return false, fmt.Errorf("if of %s gives %s, which is neither true nor false", p.label(), p.quoteValue(v))
	}

	return b, nil
}

func (p *Provider) evaluateEach(c *Call) ([]any, error) {
	v, err := ExpandValue(p.label()+" each", c.Each, p.data)
	if err != nil {
		return nil, err
	}

	items, ok := toList(v)
	switch {
	case !ok:
		return nil, fmt.Errorf("each of %s gives %s, which is not a list", p.label(), p.quoteValue(v))
	case len(items) > maxEach:
		return nil, fmt.Errorf("each of %s gives %d items, more than %d", p.label(), len(items), maxEach)
	}

	return items, nil
}

func (p *Provider) arguments(c *Call) (json.RawMessage, error) {
	with := c.With
	// Set only if it differs from the default of playbooks: tools without a report do not know it.
	if c.MustSucceed != nil || c.Expect.judges() {
		with = maps.Clone(c.With)
		if with == nil {
			with = map[string]any{}
		}
		with[mustSucceed] = c.MustSucceed != nil && *c.MustSucceed
	}
	if len(with) == 0 {
		return json.RawMessage("{}"), nil
	}

	v, err := ExpandValue(p.label()+" with", with, p.data)
	if err != nil {
		return nil, err
	}

	args, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("the arguments of %s cannot be written as JSON: %w", p.label(), err)
	}

	return args, nil
}

func (p *Provider) quoteValue(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case string:
		return fmt.Sprintf("%q", text.Truncate(p.redact(v), maxDetail))
	}
	return text.Truncate(p.redact(show(v)), maxDetail)
}
