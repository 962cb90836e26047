package agent

import (
	"context"
	"encoding/json"
	"sync"

	"rouse/agent/loop"
	"rouse/agent/redact"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// Recorder writes the loop's steps and calls into the ledger, fenced by the attempt. What
// begins is on disk before it does. What has ended is written together with what begins next,
// in one transaction, unless that may take a while, or the effect of a call could be lost:
// a read is made again after a crash, and an agent's database knows what was done. A step in which no
// model is asked does nothing by itself, so it begins with its first call.
type Recorder struct {
	ledger  *ledger.Ledger
	attempt ledger.Attempt
	redact  *redact.Redactor
	asks    bool // a model, in each step

	mu   sync.Mutex
	held []ledger.Entry // in the order in which it came
	open int            // calls that have begun
}

// NewRecorder gives the loop its record of one attempt, without the secrets. asks says that a model is asked in each step.
func NewRecorder(l *ledger.Ledger, a ledger.Attempt, secrets []string, asks bool) *Recorder {
	return newRecorder(l, a, redactor(secrets), asks)
}

func newRecorder(l *ledger.Ledger, a ledger.Attempt, r *redact.Redactor, asks bool) *Recorder {
	return &Recorder{ledger: l, attempt: a, redact: r, asks: asks}
}

func (r *Recorder) clean(raw json.RawMessage) json.RawMessage {
	return r.redact.JSON(raw)
}

func (r *Recorder) step(s loop.Step) ledger.Step {
	return ledger.Step{
		Run: r.attempt.Run, Attempt: r.attempt.Number, Number: s.Number, ParentCall: s.ParentCall, Message: r.clean(s.Message), Text: r.redact.Replace(s.Text), Model: s.Model, Notices: s.Notices,
		Usage:   ledgerUsage(s.Spent),
		Retries: s.Retried.Times, RetryError: r.redact.Replace(s.Retried.Last),
		StartedAt: s.StartedAt, FinishedAt: s.FinishedAt,
	}
}

func (r *Recorder) call(c loop.Call) ledger.Call {
	return ledger.Call{
		Run: r.attempt.Run, Attempt: r.attempt.Number, Step: c.Step, Index: c.Index, ID: c.ID, Key: c.Key, Tool: c.Tool, Args: r.clean(c.Args),
		Effect: c.Effect, State: c.State, Envelope: r.clean(c.Envelope), StartedAt: c.StartedAt, FinishedAt: c.FinishedAt,
	}
}

// StartStep implements loop.Recorder.
func (r *Recorder) StartStep(ctx context.Context, s loop.Step) error {
	// One within a call is that of a model which the call asks.
	hold := !r.asks && s.ParentCall == ""
	return r.write(ctx, 0, hold, ledger.StepStarted(r.step(s)))
}

// FinishStep implements loop.Recorder.
func (r *Recorder) FinishStep(ctx context.Context, s loop.Step) error {
	return r.write(ctx, 0, true, ledger.StepFinished(r.step(s)))
}

// StartCall implements loop.Recorder.
func (r *Recorder) StartCall(ctx context.Context, c loop.Call) error {
	return r.write(ctx, 1, false, ledger.CallStarted(r.call(c)))
}

// FinishCall implements loop.Recorder.
func (r *Recorder) FinishCall(ctx context.Context, c loop.Call) error {
	// These are safe to lose: a read is made again, and the database knows what was done.
	again := c.Effect == domain.EffectRead || c.Effect == domain.EffectDatabase
	return r.write(ctx, -1, again, ledger.CallFinished(r.call(c)))
}

// AnswerCall implements loop.Recorder. It is safe to lose: the next attempt answers it as this one did.
func (r *Recorder) AnswerCall(ctx context.Context, c loop.Call) error {
	call := r.call(c)
	return r.write(ctx, 0, true, ledger.CallStarted(call), ledger.CallFinished(call))
}

// Flush writes what was held back; the loop calls it when the run is over.
func (r *Recorder) Flush(ctx context.Context) error { return r.write(ctx, 0, false) }

// write writes entries after those that were held back, or holds them back, too: never while
// a call is on, which may take its time. began is how many calls there are more.
func (r *Recorder) write(ctx context.Context, began int, hold bool, entries ...ledger.Entry) error {
	r.mu.Lock()
	r.open += began
	entries = append(r.held, entries...)
	r.held = nil
	if hold = hold && r.open == 0; hold {
		r.held = entries
	}

	r.mu.Unlock()
	if hold || len(entries) == 0 {
		return nil
	}

	return r.ledger.Record(ctx, r.attempt, entries...)
}
