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

// maxEach bounds the items of one each.
const maxEach = 10_000

const (
	onErrorFail     = "fail"
	onErrorContinue = "continue"
)

// Call is one entry of a playbook.
type Call struct {
	Name    string         // the tool
	With    map[string]any // its arguments: templates and expressions at any depth
	Save    string         // where its result goes
	If      string         // an expression; false skips the call
	Each    any            // a list, or an expression that gives one: the call is made for each item
	OnError string         // fail (default) or continue
	// MustSucceed makes an exit code other than 0, or a status of 400 and above, a failure. If nil,
	// it does unless Expect names the codes.
	MustSucceed *bool
	Expect      Expect
	Line        int // in the configuration, for messages
}

// Options are a playbook and the data of its templates.
type Options struct {
	Calls []Call
	Data  map[string]any
	// Recorded is the envelope that a call has of an earlier attempt, and whether it was begun in one; nil: none was.
	Recorded func(key string) (envelope json.RawMessage, begun bool)
	// Forget is called for a call whose recorded result is not as expected: it is made again if its
	// attempt failed with it. Optional.
	Forget func(key string)
	// Skipped says whether the owner decided that a call is not made; nil: none is skipped.
	Skipped func(key string) bool
	// Redact removes secrets from what a summary or a message cuts; nil: there are none.
	Redact func(text string) string
}

// RemovableItem is an item of an each that may be gone, like a file. It keeps its place, because
// keys of calls are positions.
type RemovableItem interface{ Removed() bool }

// Provider makes the calls, one in each turn. It serves one attempt of one run.
type Provider struct {
	calls   []Call
	data    map[string]any
	tally   []tally
	index   int   // of the next call, or of the one whose result comes next
	items   []any // of its each; nil when it has none, or before it is evaluated
	item    int
	pending string // key of the call whose result comes with the next request

	incomplete string // the first call that left out rows although no expect accepts it

	recorded func(key string) (json.RawMessage, bool)
	forget   func(key string)
	skipped  func(key string) bool
	redact   func(text string) string
}

// New returns the provider of one attempt. It returns an error if any call has a mistake.
func New(o Options) (*Provider, error) {
	if len(o.Calls) == 0 {
		return nil, errors.New("the playbook has no calls")
	}
	if problems := Check(o.Calls, slices.Sorted(maps.Keys(o.Data))); len(problems) > 0 {
		return nil, errors.Join(problems...)
	}

	// Copied, because results are saved in it.
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

// Stream implements model.Provider: one call, or the end.
func (p *Provider) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if ctx.Err() != nil {
			yield(model.Event{}, context.Cause(ctx))
			return
		}

		call, err := p.nextCall(r)
		switch {
		case err != nil: // an end with an outcome: an error of a provider would be a turn that failed
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

// Summary says what was done so far: all of it, when the run is over.
func (p *Provider) Summary() string {
	reached := p.tally[:p.index]
	if p.index < len(p.tally) && p.tally[p.index].begun() {
		reached = p.tally[:p.index+1]
	}
	return summary(reached)
}

// nextCall records the result of the last call and finds the next one, nil after the last.
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
	case c.OnError != onErrorContinue && slices.Contains([]string{kindUnmet, "execution_error"}, e.Kind): // which say no more
		return &callError{c.Name + " " + e.Kind, fmt.Sprintf("%s failed: %s", p.label(), e.Message)}
	case c.OnError != onErrorContinue:
		return &callError{c.Name + " " + e.Kind, fmt.Sprintf("%s failed: %s: %s", p.label(), e.Kind, e.Message)}
	default:
		t.failed++
		t.kind = e.Kind
		if about, what := p.describe(c.Name, result); what != "" {
			t.failure = about + ": " + what + ","
		}
		result = nil // later templates see nothing, and not the result of another item
	}

	if c.Save != "" {
		p.data[c.Save] = result
	}

	p.advance()
	return nil
}

// noteLeftOut remembers the rows that the current call left out. An expect.that has looked at the result, and accepts it.
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

// callError is the failure of a call. Its kind names the tool and what was wrong, without the details.
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

// failedBefore reports whether the current call succeeded earlier, but not as expected.
func (p *Provider) failedBefore(key string) bool {
	raw, _ := p.recorded(key)
	if len(raw) == 0 {
		return false
	}

	e, result, err := readEnvelope(raw)
	if err != nil || !e.OK {
		return false // which the loop deals with
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

	// Later templates can name what a call saves, even when it was never made.
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
		// Evaluated once: what the calls of this each save must not change its own list.
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
		key = fmt.Sprintf("%s.%d", key, p.item+1) // recorded in ledgers: it must not change
	}

	// The condition of an item that is gone is not evaluated: it may read the item.
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

// removed says whether the current item is gone, and no earlier attempt made its call.
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
	// Said only where it differs from what holds in playbooks: tools that report nothing do not know it.
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
