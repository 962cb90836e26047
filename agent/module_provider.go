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

	"rouse/agent/history"
	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/agent/tool/moduleapi"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/workspace"
	"rouse/internal/text"
	"rouse/skills/module"
)

// stepBudgetKind is the kind of the incident of a module that has used up its steps (OSL-14).
const stepBudgetKind = "skill step budget"

const (
	maxModuleSummary = 2000 // characters
	maxModuleError   = 2000 // characters
)

// moduleProvider answers in the loop with the calls that a module makes. Each attempt runs the
// module from its beginning. Calls of earlier attempts are found by their keys and answered from
// the record.
type moduleProvider struct {
	*moduleRun
	machine  *module.Machine
	start    module.Start // of each machine, without what it calls
	hooks    *moduleHooks
	instance *module.Instance // that goes on now
	registry *tool.Registry
	times    *callTimes
	prior    map[string]loop.PriorCall
	skipped  map[string]bool
	redact   func(string) string
	events   *moduleEvents
	within   string          // the key of the call that it answers; "": the run itself is the module's
	returns  json.RawMessage // the schema of what it returns; nil: anything
	output   json.RawMessage // what it returned, nil until then

	modulePosition
	moduleCallsOpen
	moduleRehearsal

	ended *module.End // the module has; calls that it did not wait for are made
	over  *model.End  // the run ends, whatever the module does
}

// modulePosition is how far a module has come.
type modulePosition struct {
	past    history.Module
	pass    int            // of the module, which it is in since it has read its workspace
	renewed bool           // the module is to hear how many steps it took
	counts  map[string]int // of equal calls so far, in this pass
}

// moduleCallsOpen are the calls of a module that have no answer yet.
type moduleCallsOpen struct {
	open  map[string]openCall // that the loop makes now, by key
	order []string            // their keys
	held  []module.Answer     // to calls beside them
}

// moduleRehearsal is the state of a dry run.
type moduleRehearsal struct {
	dry  bool     // no call is made that changes anything
	made []string // calls of a dry run
}

type openCall struct {
	id    int
	call  moduleapi.Call
	known bool // an earlier attempt has its result
}

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
	answers, err := p.answers(ctx, results)
	if err != nil {
		return nil, nil, err
	}

	var calls []model.Call
	for {
		switch {
		case p.over != nil:
			return nil, p.over, nil
		case p.ended != nil:
			if end, err := p.endedBy(ctx, p.ended); end != nil || err != nil {
				return nil, end, err
			}
			answers = nil
		}

		if p.renewed && len(answers) > 0 {
			answers[0].Getters, p.renewed = p.host.Getters(), false
		}
		e, err := p.instance.Next(ctx, answers)
		if err != nil {
			return nil, nil, err
		}
		p.events.logs(e.Logs)

		p.ended, answers = e.End, nil
		goesOn := false // it stood still in a call that is answered, and what it called before waits with what comes
		for _, c := range e.Calls {
			call, answer := p.take(c)
			switch {
			case call != nil:
				calls = append(calls, *call)
			case answer != nil:
				answers = append(answers, *answer)
			}
			goesOn = answer != nil && e.End == nil && slices.Contains(p.start.Surface.Blocking, c.Method)
			if call != nil && p.open[call.Key].call.Over != "" { // whatever a module sends behind the end of its turn is not made
				p.ended = nil
				break
			}
		}

		if e.End != nil || slices.ContainsFunc(calls, p.waits) {
			p.events.settle()
		}
		p.events.result(e.End)
		if err := p.events.flush(ctx); err != nil {
			return nil, nil, err
		}
		if goesOn && p.over == nil {
			continue
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
func (p *moduleProvider) answers(ctx context.Context, results []model.Result) ([]module.Answer, error) {
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
		value, err := p.host.Answer(ctx, c.call, key, e)
		answers = append(answers, answer(c.id, value, err, p.seen(c.call, key)))
		if err := p.noteJob(ctx, c, key); err != nil {
			return nil, err
		}
		if c.call.Over != "" {
			p.stop(&model.End{Outcome: domain.OutcomeBudget, Error: c.call.Over, Kind: stepBudgetKind})
		}
	}

	p.order = p.order[:0]
	clear(p.open)
	return answers, nil
}

// seen returns the time of a call's end as its module sees it. It is zero for a call whose record
// may be lost, because a module must not depend on that.
func (p *moduleProvider) seen(c moduleapi.Call, key string) time.Time {
	if t, ok := p.registry.Lookup(c.Tool); ok && t.Once() {
		return time.Time{}
	}
	return p.times.of(key)
}

func (p *moduleProvider) waits(c model.Call) bool {
	t, ok := p.registry.Lookup(c.Name)
	return ok && t.Waits()
}

// noteJob puts what became of a program on record, and in the workspace for which it ran (OSL-20, OSL-29).
func (p *moduleProvider) noteJob(ctx context.Context, c openCall, key string) error {
	state := p.host.JobState(c.call, key)
	if state == "" || c.known {
		return nil
	}
	data := map[string]any{"job": key, "state": state}
	p.events.add(moduleapi.EventJob, data)
	if p.workspace == nil {
		return nil
	}

	by := workspace.Author{Attempt: ledger.Attempt{Run: p.run.ID, Number: p.run.Attempt}, Key: loop.InnerKey(key, "job")}
	err := p.ledger.Workspaces.AddEvent(context.WithoutCancel(ctx), by, p.workspace.ID, workspace.JobEvent, data)
	if errors.As(err, new(*workspace.BlockedError)) {
		return nil // its owner has paused it meanwhile, and has the run's record
	}
	return err
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

	if call.ReadsWorkspace() && p.hooks.now() == "" && p.pass < len(p.past.Passes) {
		p.beginPass()
	}
	key := p.key(call)
	if value, ok := p.past.Answer(key); ok {
		p.events.live = p.events.live || p.past.EndedWith(key, p.run.Attempt-1)
		value, again, err := p.host.Heard(call, value)
		if !again {
			return done(value, err)
		}
	}
	if p.past.Passed[key] && call.Over != "" {
		p.host.RenewSteps()
		p.renewed = true
		return done(nil, nil)
	}
	if p.skipped[key] {
		return done(nil, &moduleapi.Error{Message: "the owner of this run decided that the call is not made", Code: string(tool.KindUserDenied)})
	}
	before, known := p.prior[key]
	if known && call.AsksAgain(before.Envelope) {
		delete(p.prior, key)
		known = false
	}
	if !known {
		p.events.live = true
	}
	if p.dry && !p.rehearse(call) {
		return nil, nil
	}
	p.outage.made(call, p.effectOf(call), known)

	if call.Method() == "bridge.executeCommand" {
		p.events.add(moduleapi.EventJob, map[string]any{"job": key, "state": "queued"})
	}
	p.open[key] = openCall{c.ID, call, known}
	p.order = append(p.order, key)
	return &model.Call{ID: key, Key: key, Name: call.Tool, Args: call.Args}, nil
}

// beginPass lets the module go on from its workspace. Only calls since the last checkpoint are
// still answered from the record.
func (p *moduleProvider) beginPass() {
	p.pass, p.renewed = len(p.past.Passes), true
	p.host.Renew(p.past.Passes[p.pass-1].Steps)
	clear(p.counts)
}

// key names a call, the same in each attempt whose module makes it.
func (p *moduleProvider) key(c moduleapi.Call) string {
	prefix := ""
	if name := p.hooks.now(); name != "" {
		prefix = "hook/" + name + "/"
	} else if p.pass > 0 {
		prefix = fmt.Sprintf("%d/", p.pass)
	}
	base := fmt.Sprintf("%s:%x", c.Method(), sha256.Sum256(c.Args))[:len(c.Method())+1+16]
	p.counts[prefix+base]++
	n := p.counts[prefix+base]
	key := fmt.Sprintf("%s%s:%d", prefix, base, n)
	if p.within != "" {
		return loop.InnerKey(p.within, key)
	}

	// What was called since the last checkpoint of the pass before is not called twice.
	if _, made := p.prior[key]; !made && p.pass > 0 {
		if before, known := p.prior[p.past.Recall(p.pass, base, n)]; known {
			p.prior[key] = before
		}
	}
	return key
}

// rehearse notes a call of a dry run, and ends the run before one that would change anything.
func (p *moduleProvider) rehearse(c moduleapi.Call) bool {
	shown := p.redact(c.Describe())
	if c.Looks() || p.effectOf(c) == domain.EffectRead {
		p.made = append(p.made, shown)
		return true
	}

	p.stop(&model.End{Outcome: domain.OutcomeSuccess, Summary: text.Truncate(p.rehearsed("it would go on with "+shown), maxModuleSummary)})
	return false
}

// effectOf is that of a call. One of a tool that is not there has none.
func (p *moduleProvider) effectOf(c moduleapi.Call) domain.Effect {
	t, ok := p.registry.Lookup(c.Tool)
	if !ok {
		return domain.EffectRead
	}
	return t.EffectOf(c.Args)
}

func (p *moduleProvider) rehearsed(next string) string {
	if len(p.made) == 0 {
		return "dry run: " + p.hooks.left() + next
	}
	return "dry run: " + p.hooks.left() + "it made " + strings.Join(p.made, "; ") + "; " + next
}

func answer(id int, value json.RawMessage, err error, now time.Time) module.Answer {
	a := module.Answer{ID: id, Value: value, Now: now}
	if err != nil {
		a.Value, a.Error = nil, &module.CallError{Message: err.Error()}
		var known *moduleapi.Error
		if errors.As(err, &known) {
			a.Error.Code = known.Code
		}
	}
	return a
}

func (p *moduleProvider) end(e *module.End) *model.End {
	rules := p.skill.Manifest.Sandbox
	switch e.Status {
	case module.Returned:
		return p.returned(e.Value)
	case module.Threw:
		where, _, _ := strings.Cut(strings.TrimSpace(e.Stack), "\n")
		if where != "" {
			where = " (" + strings.TrimSpace(where) + ")"
		}
		return p.failed(domain.OutcomeError, "the module ended with an error: %s%s", e.Error, where)
	case module.TimedOut:
		return p.failed(domain.OutcomeTimeout, "the module took longer than the %s of its manifest (sandbox.maxExecutionMs)", time.Duration(rules.MaxExecutionMS)*time.Millisecond)
	case module.Memory:
		return p.failed(domain.OutcomeError, "the module needed more memory than the %d MiB of its manifest (sandbox.maxMemoryMB)", rules.MaxMemoryMB)
	case module.Stalled:
		return p.failed(domain.OutcomeError, "the module waits for what nobody will answer")
	}
	return p.failed(domain.OutcomeError, "the process of the module ended: %s", e.Error)
}

func (p *moduleProvider) failed(outcome domain.Outcome, format string, args ...any) *model.End {
	return &model.End{Outcome: outcome, Error: text.Truncate(p.redact(fmt.Sprintf(format, args...)), maxModuleError)}
}

// returned returns the end of a run whose module returned. success: false means failure (OSL-06).
func (p *moduleProvider) returned(output json.RawMessage) *model.End {
	if len(output) == 0 {
		output = json.RawMessage("null")
	}
	if err := moduleapi.CheckValue(p.returns, output); err != nil {
		return p.failed(domain.OutcomeError, "what the module returned does not fit its outputSchema: %v", err)
	}

	var fields map[string]any
	_ = json.Unmarshal(output, &fields) // an output is what its skill wants: these are read where they are there
	said := func(name string) string {
		text, _ := fields[name].(string)
		return text
	}
	if success, ok := fields["success"].(bool); ok && !success {
		return p.failed(domain.OutcomeError, "the skill says that it had no success: %s", cmp.Or(said("error"), said("message"), string(output)))
	}

	p.output = output
	summary := cmp.Or(said("summary"), said("message"), string(output))
	if p.dry {
		summary = p.rehearsed("it returned " + summary)
	}
	return &model.End{Outcome: domain.OutcomeSuccess, Summary: text.Truncate(text.Collapse(p.redact(summary)), maxModuleSummary)}
}
