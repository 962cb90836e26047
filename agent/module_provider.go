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

// stepBudgetKind is the incident kind of a module that has used up its step budget.
const stepBudgetKind = "skill step budget"

const (
	maxModuleSummary = 2000 // characters
	maxModuleError   = 2000 // characters
)

// moduleProvider is a model.Provider that passes the calls of a module to the loop. Each attempt
// runs the module from its beginning. Calls made by earlier attempts are answered from the record,
// by key.
type moduleProvider struct {
	*moduleRun
	machine  *module.Machine
	start    module.Start // start options of execute; launch changes them for hooks
	hooks    *moduleHooks
	instance *module.Instance // the running machine
	registry *tool.Registry
	times    *callTimes
	prior    map[string]loop.PriorCall
	skipped  map[string]bool
	redact   func(string) string
	events   *moduleEvents
	within   string          // key of the call that the module answers; "" if it does the run
	returns  json.RawMessage // schema of the return value; nil for any value
	output   json.RawMessage // return value; nil until the module has returned

	modulePosition
	moduleCallsOpen
	moduleRehearsal

	ended *module.End // end of the module; calls that it did not wait for are still made
	over  *model.End  // end of the run, regardless of the module
}

// modulePosition is the progress of a module through its passes.
type modulePosition struct {
	past    history.Module
	pass    int            // current pass, set when the module reads its workspace
	renewed bool           // the next answer must refresh the getters, for example the step count
	counts  map[string]int // number of equal calls in this pass
}

// moduleCallsOpen holds the unanswered calls of a module.
type moduleCallsOpen struct {
	open  map[string]openCall // calls that the loop is making, by key
	order []string            // keys of the open calls
	held  []module.Answer     // answers to other calls, delivered with the results of the open ones
}

// moduleRehearsal is the state of a dry run.
type moduleRehearsal struct {
	dry  bool     // the run makes only calls without effects
	made []string // descriptions of the calls made
}

type openCall struct {
	id    int
	call  moduleapi.Call
	known bool // an earlier attempt has the result
}

func (p *moduleProvider) stop(end *model.End) {
	if p.over == nil {
		p.over = end
	}
}

// Stream implements model.Provider. It yields the module's next calls or the end of the run.
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

// next gives the module the results of its calls and continues it. It returns the module's next
// calls or the end of the run.
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
		goesOn := false // the module blocks in an answered call; earlier calls are made with the next ones
		for _, c := range e.Calls {
			call, answer := p.take(c)
			switch {
			case call != nil:
				calls = append(calls, *call)
			case answer != nil:
				answers = append(answers, *answer)
			}
			goesOn = answer != nil && e.End == nil && slices.Contains(p.start.Surface.Blocking, c.Method)
			if call != nil && p.open[call.Key].call.Over != "" { // calls after the end of a turn are ignored
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

// answers returns the answers to the open calls, and the held ones.
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

// seen returns the end time of a call for the module's clock. It returns zero for a call whose
// record may be lost, because the module must not depend on that time.
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

// noteJob records the state of a program as an event of the run and of its workspace. It does
// nothing if the call is not a program, or if an earlier attempt has recorded its state.
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
		return nil // the workspace has been paused; the run's own event is enough
	}
	return err
}

// take returns a call for the loop to make, or the answer to the module's call. It returns neither
// if the run ends.
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

// beginPass moves the module to its latest pass, which continues from the workspace. From then on,
// only calls since the last checkpoint are answered from the record.
func (p *moduleProvider) beginPass() {
	p.pass, p.renewed = len(p.past.Passes), true
	p.host.Renew(p.past.Passes[p.pass-1].Steps)
	clear(p.counts)
}

// key returns the key of a call. The key is the same in each attempt that makes the call.
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

	// Calls made after the last checkpoint of the previous pass are not repeated.
	if _, made := p.prior[key]; !made && p.pass > 0 {
		if before, known := p.prior[p.past.Recall(p.pass, base, n)]; known {
			p.prior[key] = before
		}
	}
	return key
}

// rehearse notes a call of a dry run and reports whether to make it. It ends the run if the call
// would change something.
func (p *moduleProvider) rehearse(c moduleapi.Call) bool {
	shown := p.redact(c.Describe())
	if c.Looks() || p.effectOf(c) == domain.EffectRead {
		p.made = append(p.made, shown)
		return true
	}

	p.stop(&model.End{Outcome: domain.OutcomeSuccess, Summary: text.Truncate(p.rehearsed("it would go on with "+shown), maxModuleSummary)})
	return false
}

// effectOf returns the effect of a call. It returns EffectRead if the tool does not exist.
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

// returned returns the end of a run after its module returned a value. The run fails if the value
// contains success: false or does not fit the output schema.
func (p *moduleProvider) returned(output json.RawMessage) *model.End {
	if len(output) == 0 {
		output = json.RawMessage("null")
	}
	if err := moduleapi.CheckValue(p.returns, output); err != nil {
		return p.failed(domain.OutcomeError, "what the module returned does not fit its outputSchema: %v", err)
	}

	var fields map[string]any
	_ = json.Unmarshal(output, &fields) // the fields are optional; the output need not be an object
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
