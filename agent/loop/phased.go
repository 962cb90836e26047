package loop

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"rouse/agent/loop/memory"
	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/domain"
)

//go:embed agent_step.md
var stepText string

type stepArgs struct {
	Phase    string `json:"phase" jsonschema:"what this step is for"`
	Thinking string `json:"thinking" jsonschema:"why you take this step"`
	Summary  string `json:"summary" jsonschema:"the step in one line, for your working memory"`
	Plan     struct {
		Goal     string `json:"goal" jsonschema:"what is to be reached"`
		SubTasks []struct {
			ID        string   `json:"id"`
			Title     string   `json:"title"`
			DependsOn []string `json:"depends_on,omitempty" jsonschema:"ids of the sub-tasks that must be done before"`
		} `json:"sub_tasks" jsonschema:"in the order in which they are to be done"`
	} `json:"plan,omitempty" jsonschema:"of a plan: the whole plan"`
	Action struct {
		Tool  string         `json:"tool_name"`
		Input map[string]any `json:"tool_input" jsonschema:"the arguments of that tool"`
	} `json:"action,omitempty" jsonschema:"of an act: the tool to call"`
	Facts    []string `json:"key_facts,omitempty" jsonschema:"of a verify: what is known now and will be needed"`
	Outcome  string   `json:"sub_task_outcome,omitempty" jsonschema:"of a verify: whether the current sub-task is done or has failed"`
	Question string   `json:"feedback_message,omitempty" jsonschema:"of a feedback: what your owner is to tell you, with all that is needed to answer it"`
	Status   string   `json:"end_status,omitempty" jsonschema:"of an end: whether the task is solved, partial or you are stuck"`
	Message  string   `json:"end_message,omitempty" jsonschema:"of an end: what was done and what came of it"`
}

// StepSpec returns the spec of the tool with which a model works in phases.
func StepSpec() tool.Spec {
	var phases []string
	for _, p := range memory.Phases() {
		phases = append(phases, string(p))
	}

	return tool.Spec{
		Name: memory.StepTool, Description: strings.TrimSpace(stepText), Effect: domain.EffectRead, Class: tool.ClassOther, Scope: tool.ScopeRun, Writes: tool.WritesNothing,
		Args: reflect.TypeFor[stepArgs](), Requires: tool.RequiresPhases,
		Enum: map[string][]string{
			"phase": phases, "sub_task_outcome": {string(memory.Done), string(memory.Failed)},
			"end_status": {memory.Solved, memory.Partial, memory.Stuck},
		},
	}
}

// StepTool returns the tool of StepSpec. The loop itself handles its calls.
func StepTool() (tool.Tool, error) {
	return tool.Define(StepSpec(), func(context.Context, tool.Invocation, stepArgs) (tool.Envelope, error) {
		return tool.Failure(tool.KindUnavailable, "this run does not work in phases"), nil
	})
}

// phased is the state of a run in phases in addition to its history.
type phased struct {
	memory    *memory.Memory
	durations map[string]time.Duration // of calls, by key
	view      string                   // view for the next request
	signals   []string                 // signals in the view
}

func newPhased(o Options) *phased {
	if o.Policy.Phases.MaxSteps <= 0 {
		return nil
	}

	p := &phased{memory: memory.New(o.Board), durations: map[string]time.Duration{}}
	for key, d := range o.PriorDurations {
		p.durations[key] = d
	}
	return p
}

// limit returns the number of steps that this attempt may take. In phases it grows with each
// action.
func (r *run) limit() int {
	if r.phased == nil {
		return r.Bounds.Steps
	}

	p := r.Policy.Phases
	most := max(min(p.BaseSteps+p.PerCall*r.phased.memory.Actions(), p.MaxSteps)-r.PriorSteps, 1)
	if r.Bounds.Steps > 0 {
		most = min(most, r.Bounds.Steps)
	}
	return most
}

func (r *run) renderMemory() {
	p := r.phased
	if p == nil {
		return
	}

	// Exclude the view of the last request from the percentage that this one shows.
	r.window.extra = 0
	s := memory.Signals{Used: r.PriorSteps + r.stepsCharged, Budget: r.PriorSteps + r.limit()}
	if r.window.budget > 0 {
		s.Context = min(100*r.window.total(r.messages)/r.window.budget, 100)
	}

	// Limit the view's bytes to the history's tokens, which is about a quarter of the space.
	p.view = p.memory.View(s, min(r.Policy.Phases.View, r.window.budget))
	p.signals = nil
	for _, text := range p.memory.Signals(s) {
		p.signals = append(p.signals, noticePrefix+text+".")
	}

	r.window.extra = tokens(len(p.view)) + perMessage
}

func (r *run) noticesForRecord() []string {
	if r.phased == nil {
		return r.staged
	}
	return append(slices.Clip(r.phased.signals), r.staged...)
}

// recordDuration stores the duration of a call when it is first made.
func (r *run) recordDuration(key string, from, to time.Time) {
	if r.phased == nil {
		return
	}

	r.knownMu.Lock()
	defer r.knownMu.Unlock()

	if _, known := r.phased.durations[key]; !known {
		r.phased.durations[key] = RecordedDuration(from, to)
	}
}

// RecordedDuration returns a duration with the precision of the record, so that a resumed run
// renders the same view.
func RecordedDuration(from, to time.Time) time.Duration {
	return time.Duration(to.UnixMilli()-from.UnixMilli()) * time.Millisecond
}

// recordIndex returns the index of a call's record. In phases, the following index is for its inner
// call.
func (r *run) recordIndex(i int) int {
	if r.phased == nil {
		return i
	}
	return 2 * i
}

func (r *run) isStep(c model.Call) bool { return r.phased != nil && c.Name == memory.StepTool }

// phasedCall returns the call that a step makes, or false for a step without a call. Any other call
// is its own inner call. A question is a call of the asking tool.
func (r *run) phasedCall(c model.Call) (model.Call, bool) {
	if !r.isStep(c) {
		return c, true
	}

	parsed, invalid := memory.Parse(c.Args)
	in := model.Call{ID: c.ID + ".1", Key: c.Key + ".1", Name: parsed.Tool, Args: parsed.Input}
	switch {
	case invalid != nil || (parsed.Phase != memory.Act && parsed.Phase != memory.Feedback):
		return c, false
	case parsed.Phase == memory.Feedback:
		args, err := json.Marshal(map[string]string{"question": parsed.Question})
		if err != nil {
			return c, false
		}
		in.Name, in.Args = r.askTool(), args
	}

	return in, true
}

// askTool returns the name of the tool that asks the owner, or its usual name if the run does not
// have it.
func (r *run) askTool() string {
	for _, name := range r.Registry.Names() {
		if t, ok := r.Registry.Lookup(name); ok && t.Waits() {
			return name
		}
	}
	return "clarify"
}

// affordable returns the number of calls that may be made, and the number of calls left after them.
// A step with an action counts as two.
func (r *run) affordable(calls []model.Call, left int) (fit, spare int) {
	for i, c := range calls {
		price := 1
		if _, acts := r.phasedCall(c); acts && r.isStep(c) {
			price = 2
		}
		if left < price {
			return i, left
		}
		left -= price
	}
	return len(calls), left
}

// repeatedTooOften marks the calls that exceed the limit of consecutive repetitions.
func (r *run) repeatedTooOften(calls []model.Call) []bool {
	out := make([]bool, len(calls))
	if r.phased == nil || r.Policy.Phases.Repeats <= 0 {
		return out
	}

	// The calls of this answer are not in the memory yet, so count them in addition.
	last, streak := r.phased.memory.Streak()
	for i, c := range calls {
		made, ok := r.phasedCall(c)
		if !ok {
			continue
		}

		if sig := signature(made); sig != last {
			last, streak = sig, 0
		}

		streak++
		out[i] = streak > r.Policy.Phases.Repeats
	}

	return out
}

// answerStep answers a step with the result of its inner call, or from the working memory.
func (b *callBatch) answerStep(ctx context.Context, i int) (tool.Envelope, string, error) {
	r := b.run
	step := b.calls[i]
	// Replay the whole step including its inner call, whose record has the same result.
	if len(r.PriorCalls[step.Key].Envelope) > 0 {
		e, text, err := r.execute(ctx, b.step, r.recordIndex(i), step)
		if err == nil {
			r.memorize(step, e)
		}
		return e, text, err
	}

	return r.callRecorded(ctx, b.step, r.recordIndex(i), step, func(ctx context.Context, c model.Call) (tool.Envelope, domain.CallState, error) {
		made, acts := r.phasedCall(c)
		if e := b.refusals[i]; e != nil && !acts {
			return *e, domain.CallFailed, nil
		}

		if !acts {
			e := r.memorize(c, tool.Envelope{})
			if !e.OK {
				return e, domain.CallFailed, nil
			}
			return e, domain.CallDone, nil
		}

		r.result.Calls++ // the step itself is counted with the results of the batch
		e, _, err := b.answerCall(ctx, i, r.recordIndex(i)+1, made, false)
		switch {
		case err != nil:
			return e, "", err
		case r.isParked(made.Key) || ctx.Err() != nil && !e.OK && unfinished(e.Kind):
			// The step itself can always be made again. The record of the inner call decides
			// whether that call may be repeated.
			return e, domain.CallInterrupted, nil
		}

		r.memorize(c, e)
		if !e.OK {
			return e, domain.CallFailed, nil
		}

		return e, domain.CallDone, nil
	})
}

// memorize stores a call and its result in the memory. It returns the reply to a step without an
// inner call.
func (r *run) memorize(c model.Call, e tool.Envelope) tool.Envelope {
	made, acts := r.phasedCall(c)
	if acts {
		r.rebuildTodo(made, e)
	}

	if r.phased == nil {
		return e
	}
	if !acts {
		return r.answerMemoryStep(c)
	}

	a := r.memoryAction(made, e)
	a.Duration = r.phased.durations[made.Key]
	if r.isStep(c) {
		parsed, _ := memory.Parse(c.Args) // phasedCall has validated it
		a.Thinking, a.Summary = parsed.Thinking, parsed.Summary
	}

	r.phased.memory.RecordAction(a)
	return e
}

// rebuildTodo restores the todo list from a replayed call, because the list is kept only in memory.
func (r *run) rebuildTodo(made model.Call, e tool.Envelope) {
	if t, known := r.Registry.Lookup(made.Name); r.Board == nil || !e.OK || !known || t.Class() != tool.ClassPlan {
		return
	}
	var list struct{ Markdown string }
	if json.Unmarshal(made.Args, &list) == nil && list.Markdown != "" {
		r.Board.SetItems(memory.ParseItems(list.Markdown)) // no change if the tool has just run
	}
}

func (r *run) memoryAction(made model.Call, e tool.Envelope) memory.Action {
	a := memory.Action{Phase: memory.Act, Summary: "called " + made.Name, Tool: made.Name, Signature: signature(made), Input: string(withoutBlanks(made.Args)),
		Output: output(e), Failed: !e.OK, Kind: string(e.Kind)}
	// A call that plans, asks or ends does not count as an action, with or without a step.
	switch t, known := r.Registry.Lookup(made.Name); {
	case !known:
	case t.Class() == tool.ClassPlan:
		a.Phase = memory.Planning
	case t.Waits():
		a.Phase = memory.Feedback
	case t.Ends():
		a.Phase = memory.End
	}

	return a
}

func (r *run) answerMemoryStep(c model.Call) tool.Envelope {
	parsed, invalid := memory.Parse(c.Args)
	if invalid != nil {
		e := tool.Failure(tool.KindInvalidArgs, "%s", invalid.Message).WithField(invalid.Field, invalid.Expected)
		e.Tool = memory.StepTool
		return e
	}

	reply, warnings := r.phased.memory.RecordStep(parsed)
	if parsed.Phase == memory.End {
		// Use the fields of complete, so that all endings are read in the same way.
		end := map[string]string{"summary": parsed.Message, "outcome": string(domain.OutcomeSuccess)}
		switch parsed.Status {
		case memory.Partial:
			end["outcome"] = string(domain.OutcomePartial)
		case memory.Stuck:
			end["outcome"], end["error"] = string(domain.OutcomeError), "stuck: "+parsed.Message
		}

		reply = end
	}

	e := tool.Success(reply, warnings...)
	e.Tool = memory.StepTool
	return e
}

func output(e tool.Envelope) string {
	if e.OK {
		return string(withoutBlanks(e.Result))
	}
	return fmt.Sprintf("%s: %s", e.Kind, e.Message)
}

// endIfIdle ends a run with too many consecutive steps without an action.
func (r *run) endIfIdle() bool {
	if r.phased == nil || r.Policy.Phases.Idle <= 0 || r.phased.memory.IdleSteps() < r.Policy.Phases.Idle {
		return false
	}
	r.end(domain.ExitEnded, domain.OutcomeError, "", "stuck: %d steps in a row did nothing", r.phased.memory.IdleSteps())
	return true
}
