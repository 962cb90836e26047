package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/agent/tool/host"
	"rouse/internal/domain"
	"rouse/internal/text"
	"rouse/skills/module"
)

const (
	maxModuleSummary = 2000 // characters
	maxModuleError   = 2000 // characters
)

// moduleProvider answers in the loop with the calls that a module makes of its host. An attempt runs the module from its
// beginning. A call that an earlier one has made is found by its key, and answered from the record: the method, a hash of its
// arguments, and how many equal ones came before it.
type moduleProvider struct {
	*moduleRun
	instance *module.Instance
	registry *tool.Registry
	times    *callTimes
	prior    map[string]loop.PriorCall
	skipped  map[string]bool
	redact   func(string) string
	events   *moduleEvents

	counts map[string]int      // of equal calls so far
	open   map[string]openCall // that the loop makes now, by key
	order  []string            // their keys
	held   []module.Answer     // to calls beside them
	ended  *module.End         // the module has; calls that it did not wait for are made
	over   *model.End          // the run ends, whatever the module does

	dry  bool     // no call is made that changes anything
	made []string // calls of a dry run
}

// openCall is a call of a module that the loop makes.
type openCall struct {
	id   int
	call host.Call
}

// stop ends the run when its calls are made.
func (p *moduleProvider) stop(end *model.End) {
	if p.over == nil {
		p.over = end
	}
}

// Stream implements model.Provider: calls, or the end.
func (p *moduleProvider) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if ctx.Err() != nil {
			yield(model.Event{}, context.Cause(ctx))
			return
		}

		calls, end, err := p.next(ctx, r.Results)
		switch {
		case err != nil:
			yield(model.Event{}, err)
		case end != nil:
			yield(model.Event{End: end}, nil)
		}
		for i := range calls {
			if !yield(model.Event{Call: &calls[i]}, nil) {
				return
			}
		}
	}
}

// next gives the module the results of its calls, and has it go on until it needs others, or ends.
func (p *moduleProvider) next(ctx context.Context, results []model.Result) ([]model.Call, *model.End, error) {
	answers, err := p.answers(results)
	if err != nil {
		return nil, nil, err
	}

	for {
		switch {
		case p.over != nil:
			return nil, p.over, nil
		case p.ended != nil:
			return nil, p.end(p.ended), nil
		}

		e, err := p.instance.Next(ctx, answers)
		if err != nil {
			return nil, nil, err
		}
		p.events.logs(e.Logs)

		var calls []model.Call
		p.ended, answers = e.End, nil
		for _, c := range e.Calls {
			call, answer := p.take(c)
			switch {
			case call != nil:
				calls = append(calls, *call)
			case answer != nil:
				answers = append(answers, *answer)
			}
		}

		if err := p.events.flush(ctx); err != nil {
			return nil, nil, err
		}
		if len(calls) > 0 && p.over == nil {
			p.held = answers
			return calls, nil, nil
		}
		if len(e.Calls) == 0 && e.End == nil {
			return nil, nil, errors.New("the machine of a module neither went on nor ended")
		}
	}
}

// answers are what the module gets for the calls that it waits for.
func (p *moduleProvider) answers(results []model.Result) ([]module.Answer, error) {
	answers := p.held
	p.held = nil
	for _, key := range p.order {
		at := slices.IndexFunc(results, func(r model.Result) bool { return r.Call.Key == key })
		if at < 0 {
			return nil, fmt.Errorf("the call %s of a module gave no result", key)
		}

		var e tool.Envelope
		if err := json.Unmarshal(results[at].Envelope, &e); err != nil {
			return nil, fmt.Errorf("the result of the call %s of a module cannot be read: %w", key, err)
		}

		c := p.open[key]
		value, err := p.host.Answer(c.call, key, e)
		answers = append(answers, answer(c.id, value, err, p.times.of(key)))
	}

	p.order = p.order[:0]
	clear(p.open)
	return answers, nil
}

// take makes a call of a module one of the loop, or answers it.
func (p *moduleProvider) take(c module.Call) (*model.Call, *module.Answer) {
	done := func(value json.RawMessage, err error) (*model.Call, *module.Answer) {
		a := answer(c.ID, value, err, time.Time{})
		return nil, &a
	}

	call, err := p.host.Translate(c.Method, c.Args)
	if err != nil {
		return done(nil, err)
	}
	if call.Event != nil {
		p.events.add(call.Event.Kind, call.Event.Data)
	}
	if call.Tool == "" {
		return done(call.Value, nil)
	}

	key := p.key(c.Method, call.Args)
	if p.skipped[key] {
		return done(nil, &host.Error{Message: "the owner of this run decided that the call is not made", Code: string(tool.KindUserDenied)})
	}
	if _, known := p.prior[key]; !known {
		p.events.live = true
	}
	if p.dry && !p.rehearse(call) {
		return nil, nil
	}

	p.open[key] = openCall{c.ID, call}
	p.order = append(p.order, key)
	return &model.Call{ID: key, Key: key, Name: call.Tool, Args: call.Args}, nil
}

// key names a call, the same in each attempt whose module makes it.
func (p *moduleProvider) key(method string, args json.RawMessage) string {
	key := fmt.Sprintf("%s:%x", method, sha256.Sum256(args))[:len(method)+1+16]
	p.counts[key]++
	return fmt.Sprintf("%s:%d", key, p.counts[key])
}

// rehearse notes a call of a dry run, and ends the run before one that would change anything.
func (p *moduleProvider) rehearse(c host.Call) bool {
	t, ok := p.registry.Lookup(c.Tool)
	shown := p.redact(c.Describe())
	if !ok || c.Looks() || t.EffectOf(c.Args) == domain.EffectRead {
		p.made = append(p.made, shown)
		return true
	}

	p.stop(&model.End{Outcome: domain.OutcomeSuccess, Summary: text.Truncate(p.rehearsed("it would go on with "+shown), maxModuleSummary)})
	return false
}

func (p *moduleProvider) rehearsed(next string) string {
	if len(p.made) == 0 {
		return "dry run: " + next
	}
	return "dry run: it made " + strings.Join(p.made, "; ") + "; " + next
}

func answer(id int, value json.RawMessage, err error, now time.Time) module.Answer {
	a := module.Answer{ID: id, Value: value, Now: now}
	if err != nil {
		a.Value, a.Error = nil, &module.CallError{Message: err.Error()}
		var known *host.Error
		if errors.As(err, &known) {
			a.Error.Code = known.Code
		}
	}
	return a
}

// end is how the run ends with its module.
func (p *moduleProvider) end(e *module.End) *model.End {
	rules := p.skill.Manifest.Sandbox
	failed := func(outcome domain.Outcome, format string, args ...any) *model.End {
		return &model.End{Outcome: outcome, Error: text.Truncate(p.redact(fmt.Sprintf(format, args...)), maxModuleError)}
	}

	switch e.Status {
	case module.Returned:
		return p.returned(e.Value)
	case module.Threw:
		where, _, _ := strings.Cut(strings.TrimSpace(e.Stack), "\n")
		if where != "" {
			where = " (" + strings.TrimSpace(where) + ")"
		}
		return failed(domain.OutcomeError, "the module ended with an error: %s%s", e.Error, where)
	case module.TimedOut:
		return failed(domain.OutcomeTimeout, "the module took longer than the %s of its manifest (sandbox.maxExecutionMs)", time.Duration(rules.MaxExecutionMS)*time.Millisecond)
	case module.Memory:
		return failed(domain.OutcomeError, "the module needed more memory than the %d MiB of its manifest (sandbox.maxMemoryMB)", rules.MaxMemoryMB)
	case module.Stalled:
		return failed(domain.OutcomeError, "the module waits for what nobody will answer")
	}
	return failed(domain.OutcomeError, "the process of the module ended: %s", e.Error)
}

// returned is the end of a module that returned. One that says of itself that it had no success, by success: false, has
// failed (OSL-06).
func (p *moduleProvider) returned(output json.RawMessage) *model.End {
	if len(output) == 0 {
		output = json.RawMessage("null")
	}
	if err := host.CheckValue(p.skill.Manifest.OutputSchema, output); err != nil {
		return &model.End{Outcome: domain.OutcomeError, Error: text.Truncate(p.redact(fmt.Sprintf("what the module returned does not fit its outputSchema: %v", err)), maxModuleError)}
	}

	var fields map[string]any
	_ = json.Unmarshal(output, &fields) // an output is what its skill wants: these are read where they are there
	said := func(name string) string {
		text, _ := fields[name].(string)
		return text
	}
	if success, ok := fields["success"].(bool); ok && !success {
		return &model.End{Outcome: domain.OutcomeError, Error: text.Truncate(p.redact("the skill says that it had no success: "+cmp.Or(said("error"), said("message"), string(output))), maxModuleError)}
	}

	summary := cmp.Or(said("summary"), said("message"), string(output))
	if p.dry {
		summary = p.rehearsed("it returned " + summary)
	}
	return &model.End{Outcome: domain.OutcomeSuccess, Summary: text.Truncate(text.Collapse(p.redact(summary)), maxModuleSummary)}
}
