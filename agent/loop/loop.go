package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"rouse/agent/model"
	"rouse/agent/tool"
)

// run is the state of one attempt.
type run struct {
	Options
	result   Result
	messages []model.Message
	results  []model.Result // of the last step
	staged   []string       // notices for the next request alone
	empty    int            // empty answers in a row
	output   int64          // bytes that the model wrote
	idle     *idle
	// worked: a tool has answered; changeFailed: the last call that could change something
	// did not succeed.
	worked, changeFailed bool
}

// Run drives one attempt to its end. An error means that the host is broken; whatever the
// model, a tool or a person did is in the Result.
func Run(ctx context.Context, o Options) (Result, error) {
	if o.Provider == nil || o.Registry == nil || o.Recorder == nil {
		return Result{}, errors.New("loop: a provider, a registry and a recorder are needed")
	}
	o.Bounds = o.Bounds.withDefaults()
	r := &run{Options: o, messages: slices.Clone(o.Messages)}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if d := o.Bounds.Wall; d > 0 {
		t := time.AfterFunc(d, func() { cancel(&stop{"timeout", fmt.Sprintf("the run took longer than its wall time of %s", d)}) })
		defer t.Stop()
	}
	r.idle = newIdle(o.Bounds.Idle, func() { cancel(&stop{"timeout", fmt.Sprintf("nothing happened for %s", o.Bounds.Idle)}) })
	defer r.idle.stop()
	r.recall()
	err := r.drive(ctx)
	return r.result, err
}

// recall learns from the transcript of earlier attempts what its calls came to.
func (r *run) recall() {
	for _, m := range r.messages {
		if m.Role != model.RoleTool {
			continue
		}
		var e tool.Envelope
		r.note(m.Name, json.Unmarshal([]byte(m.Text), &e) == nil && e.OK)
	}
}

// note remembers what a call came to.
func (r *run) note(name string, ok bool) {
	r.worked = true
	if t, known := r.Registry.Lookup(name); known && t.Effect() != tool.Read && !t.Ends() {
		r.changeFailed = !ok
	}
}

// drive iterates until something ends the run.
func (r *run) drive(ctx context.Context) error {
	if len(r.Pending) > 0 {
		if over, err := r.finishPending(ctx); over || err != nil {
			return err
		}
	}
	for charged := 0; ; {
		if r.stopped(ctx) {
			return nil
		}
		if !r.Policy.Plain && r.Bounds.Steps > 0 && charged >= r.Bounds.Steps {
			return r.close(ctx)
		}
		charged++
		r.warn(charged)
		t, failure, err := r.step(ctx, false)
		if err != nil {
			return err
		}
		if failure != nil {
			r.fail(ctx, failure)
			return nil
		}
		over, free, err := r.react(ctx, t)
		if over || err != nil {
			return err
		}
		if free {
			charged--
		}
	}
}

// react does what an answer asks for. free says that the step is not charged.
func (r *run) react(ctx context.Context, t turn) (over, free bool, err error) {
	switch {
	case t.end != nil:
		r.result.Exit, r.result.Outcome = Ended, t.end.Outcome
		r.result.Summary, r.result.Error = t.end.Summary, t.end.Error
		r.result.Verified = t.end.Outcome == "success"
		return true, false, nil
	case len(t.calls) > 0:
		r.empty = 0
		over, err := r.act(ctx, t)
		return over, false, err
	case strings.TrimSpace(t.text) == "":
		return r.nudge(), true, nil
	}
	r.result.Exit, r.result.Outcome, r.result.Summary = FinalResponse, "success", strings.TrimSpace(t.text)
	if r.result.Error = t.cutOff(); r.result.Error == "" && r.changeFailed {
		r.result.Error = "the last call that could change something failed"
	}
	if r.result.Error != "" {
		r.result.Outcome = "partial"
	}
	return true, false, nil
}

// stopped ends the run when its context has ended, for the reason that ended it.
func (r *run) stopped(ctx context.Context) bool {
	if ctx.Err() == nil {
		return false
	}
	r.result.Exit, r.result.Outcome, r.result.Error = Cancelled, "cancelled", context.Cause(ctx).Error()
	r.adopt(context.Cause(ctx))
	return true
}

// adopt takes the outcome that a cause carries.
func (r *run) adopt(cause error) bool {
	var why interface{ Outcome() string }
	if !errors.As(cause, &why) {
		return false
	}
	r.result.Exit, r.result.Outcome, r.result.Error = Cancelled, why.Outcome(), cause.Error()
	return true
}

// exhausted ends the run because a bound was used up.
func (r *run) exhausted(format string, args ...any) {
	r.result.Exit, r.result.Outcome, r.result.Error = Cancelled, "budget_exceeded", fmt.Sprintf(format, args...)
}

// fail ends the run because the model's side failed for good, or wrote too much.
func (r *run) fail(ctx context.Context, failure error) {
	if !r.stopped(ctx) && !r.adopt(failure) {
		r.result.Exit, r.result.Outcome, r.result.Error = Ended, "error", failure.Error()
	}
}

// close ends a run whose steps are used up with one text without tools.
func (r *run) close(ctx context.Context) error {
	r.result.Exit, r.result.Outcome = IterationCap, "budget_exceeded"
	r.result.Error = fmt.Sprintf("the %d steps of this run were used up", r.Bounds.Steps)
	r.stage("All steps are used up, and no tool can be called any more. Say in a few sentences what was done and what is missing.")
	t, failure, err := r.step(ctx, true)
	if failure == nil && err == nil {
		r.result.Summary = strings.TrimSpace(t.text)
	}
	return err
}
