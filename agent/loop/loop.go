package loop

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"rouse/agent/model"
)

const noticePrefix = "[System Notice] "

// run is the state of one attempt.
type run struct {
	Options
	result   Result
	messages []model.Message
	results  []model.Result // of the last step
	staged   []string       // notices for the next request alone
	empty    int            // empty answers in a row
	output   int64
	// changeFailed: the last call that could change something did not succeed.
	changeFailed bool
	touch        func() // something happened: the idle clock starts anew
}

// Run drives one attempt to its end. An error means that the host is broken; whatever the
// model, a tool or a person did is in the Result.
func Run(ctx context.Context, o Options) (Result, error) {
	if o.Provider == nil || o.Registry == nil || o.Recorder == nil {
		return Result{}, errors.New("loop: a provider, a registry and a recorder are needed")
	}
	o.Bounds = o.Bounds.withDefaults()
	r := &run{Options: o, messages: append([]model.Message(nil), o.Messages...), touch: func() {}}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if d := o.Bounds.Wall; d > 0 {
		t := time.AfterFunc(d, func() { cancel(&stop{"timeout", fmt.Sprintf("the run took longer than its wall time of %s", d)}) })
		defer t.Stop()
	}
	if d := o.Bounds.Idle; d > 0 {
		t := time.AfterFunc(d, func() { cancel(&stop{"timeout", fmt.Sprintf("nothing happened for %s", d)}) })
		defer t.Stop()
		r.touch = func() { t.Reset(d) }
	}
	err := r.drive(ctx)
	return r.result, err
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
	if r.changeFailed {
		r.result.Outcome = "partial"
		r.result.Error = "the last call that could change something failed"
	}
	return true, false, nil
}

// stopped ends the run when its context has ended, for the reason that ended it.
func (r *run) stopped(ctx context.Context) bool {
	if ctx.Err() == nil {
		return false
	}
	cause := context.Cause(ctx)
	r.result.Exit, r.result.Outcome, r.result.Error = Cancelled, "cancelled", cause.Error()
	var why interface{ Outcome() string }
	if errors.As(cause, &why) {
		r.result.Outcome = why.Outcome()
	}
	return true
}

// exhausted ends the run because a bound was used up.
func (r *run) exhausted(format string, args ...any) {
	r.result.Exit, r.result.Outcome, r.result.Error = Cancelled, "budget_exceeded", fmt.Sprintf(format, args...)
}

// fail ends the run because the model's side failed for good.
func (r *run) fail(ctx context.Context, failure error) {
	if !r.stopped(ctx) {
		r.result.Exit, r.result.Outcome, r.result.Error = Ended, "error", failure.Error()
	}
}

// nudge asks again after an empty answer, at most so often in a row (OSA-04).
func (r *run) nudge() (over bool) {
	r.empty++
	worked := r.result.Calls > 0
	if r.empty <= r.Policy.EmptyRetries {
		r.staged = append(r.staged, noticePrefix+"Your last answer was empty. Go on with the task: call a tool, or say the result in words.")
		return false
	}
	r.result.Exit, r.result.Outcome = EmptyResponse, "error"
	r.result.Error = "the model gave only empty answers"
	if worked {
		r.result.Outcome = "partial"
		r.result.Summary = "The model ended without a word after its tool calls; see what they did."
	}
	return true
}

// warn tells the model when its steps run out (OSA-05).
func (r *run) warn(charged int) {
	left := r.Bounds.Steps - charged + 1
	if r.Policy.Plain || r.Bounds.Steps <= 0 || r.Policy.BudgetWarning <= 0 {
		return
	}
	if left > 0 && left <= r.Policy.BudgetWarning {
		r.staged = append([]string{fmt.Sprintf("%s%d of %d steps remaining.", noticePrefix, left, r.Bounds.Steps)}, r.staged...)
	}
}

// close ends a run whose steps are used up with one text without tools.
func (r *run) close(ctx context.Context) error {
	r.result.Exit, r.result.Outcome = IterationCap, "budget_exceeded"
	r.result.Error = fmt.Sprintf("the %d steps of this run were used up", r.Bounds.Steps)
	r.staged = append(r.staged, noticePrefix+"All steps are used up, and no tool can be called any more. Say in a few sentences what was done and what is missing.")
	t, failure, err := r.step(ctx, true)
	if failure == nil && err == nil {
		r.result.Summary = strings.TrimSpace(t.text)
	}
	return err
}

// turn is one answer.
type turn struct {
	number int
	text   string
	calls  []model.Call
	end    *model.End
	usage  model.Usage
}

// step asks for one answer and records it. failure is the model's side; err is the host's.
func (r *run) step(ctx context.Context, noTools bool) (t turn, failure, err error) {
	if r.Policy.Plain {
		return r.play(ctx)
	}
	writing := context.WithoutCancel(ctx)
	r.result.Steps++
	s := Step{Number: r.result.Steps, Notices: r.staged, StartedAt: time.Now()}
	if err := r.Recorder.StartStep(writing, s); err != nil {
		return turn{}, nil, err
	}
	for try := 0; ; try++ {
		t, failure = r.ask(ctx, noTools)
		r.staged = nil // they ride once, and are not replayed
		var e *model.Error
		if failure == nil || ctx.Err() != nil || !errors.As(failure, &e) || !e.Retryable || try >= r.Policy.TurnRetries {
			break
		}
		if !pause(ctx, e, try) {
			break
		}
	}
	t.number = s.Number
	s.Text, s.Usage, s.FinishedAt = t.text, t.usage, time.Now()
	if failure != nil {
		s.Text = "the model failed: " + failure.Error()
		return t, failure, r.Recorder.FinishStep(writing, s)
	}
	r.name(&t)
	message := model.Message{Role: model.RoleAssistant, Text: t.text, Calls: t.calls}
	if s.Message, err = json.Marshal(message); err != nil {
		return t, nil, fmt.Errorf("the answer of the model cannot be recorded: %w", err)
	}
	if t.text != "" || len(t.calls) > 0 {
		r.messages = append(r.messages, message)
	}
	r.add(t)
	return t, nil, r.Recorder.FinishStep(writing, s)
}

// play is a step of a playbook, which knows its answer at once: its end is no step.
func (r *run) play(ctx context.Context) (t turn, failure, err error) {
	writing := context.WithoutCancel(ctx)
	s := Step{Number: r.result.Steps + 1, StartedAt: time.Now()}
	if t, failure = r.ask(ctx, false); failure != nil || len(t.calls) == 0 {
		return t, failure, nil
	}
	r.result.Steps++
	t.number = s.Number
	r.name(&t)
	if err := r.Recorder.StartStep(writing, s); err != nil {
		return t, nil, err
	}
	s.FinishedAt = time.Now()
	return t, nil, r.Recorder.FinishStep(writing, s)
}

func (r *run) add(t turn) {
	r.result.Usage.Input += t.usage.Input
	r.result.Usage.Output += t.usage.Output
	r.result.Usage.Cached += t.usage.Cached
	r.output += int64(len(t.text))
	for _, c := range t.calls {
		r.output += int64(len(c.Args))
	}
}

// pause waits before a turn is asked again; false when the run has to end meanwhile, or
// when the server wants a longer pause than a run can take.
func pause(ctx context.Context, e *model.Error, try int) bool {
	wait := max(e.RetryAfter, time.Second<<try)
	if wait > 2*time.Minute {
		return false
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// ask streams one answer. Nothing of a broken one is used.
func (r *run) ask(ctx context.Context, noTools bool) (turn, error) {
	req := model.Request{System: r.System, Messages: r.messages, Tools: r.Registry.Models(), NoTools: noTools,
		MaxOutput: r.MaxOutput, Temperature: r.Temperature, Results: r.results}
	if len(r.staged) > 0 {
		req.Messages = append(req.Messages[:len(req.Messages):len(req.Messages)], model.Message{Role: model.RoleUser, Text: strings.Join(r.staged, "\n")})
	}
	var t turn
	var text strings.Builder
	for e, err := range r.Provider.Stream(ctx, req) {
		if err != nil {
			return turn{}, err
		}
		r.touch()
		text.WriteString(e.Text)
		switch {
		case e.Call != nil && !noTools:
			t.calls = append(t.calls, *e.Call)
		case e.Usage != nil:
			t.usage = *e.Usage
		case e.End != nil:
			t.end = e.End
		}
	}
	if ctx.Err() != nil {
		return turn{}, context.Cause(ctx)
	}
	t.text = text.String()
	return t, nil
}

// name gives each call its id (OSA-09) and the key under which later attempts find it.
func (r *run) name(t *turn) {
	for i := range t.calls {
		c := &t.calls[i]
		if c.ID == "" {
			var b [12]byte
			_, _ = rand.Read(b[:]) // never fails
			c.ID = "call_" + hex.EncodeToString(b[:])
		}
		if c.Key == "" {
			c.Key = fmt.Sprintf("m%d.%d.%d", r.Invocation.Attempt, t.number, i+1)
		}
	}
}
