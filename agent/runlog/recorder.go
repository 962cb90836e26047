// Package runlog writes the steps, calls and events of a run into the ledger.
package runlog

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"rouse/agent/loop"
	"rouse/agent/redact"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/steps"
)

// An entry that may lag is written after maxLag, or as soon as maxQueued entries are queued.
const (
	maxLag    = 100 * time.Millisecond
	maxQueued = 256
)

// Recorder writes the loop's steps and calls into the ledger, fenced by the attempt.
//
// All entries pass through one queue. Only one flush at a time writes the whole queue, in one
// transaction, so the ledger keeps their order.
//
// Adding a barrier returns when it and all earlier entries are durable. Barriers are the start of a
// call with an effect, the end of a call that cannot be repeated, and the start of a step that asks
// a model. Other entries may lag until the next barrier or maxLag. After a crash, reads are
// repeated, and changes of an agent's database are in its journal. The result of the attempt
// commits the last entries.
//
// Calls of a module into its own storage (loop.Call.Once) may lag too. The storage journals them,
// and a restarted module repeats them. Results that the module already received are made durable
// first.
//
// After the first error, every later entry fails with the same error.
type Recorder struct {
	record  func(context.Context, ledger.Attempt, ...ledger.Entry) error
	attempt ledger.Attempt
	redact  *redact.Redactor
	asks    bool // each step sends a model request
	// Settle is called before calls that may have created files are recorded. Optional.
	Settle func(context.Context) error
	left   bool // end commits the last entries

	mu       sync.Mutex
	queue    []ledger.Entry // entries that are not yet being written
	queued   int            // number of entries added so far
	durable  int            // number of durable entries
	told     int            // position of the last entry that gave the caller a result
	made     bool           // a call in the queue may have created files
	timer    *time.Timer    // flushes the queue after maxLag; nil while the queue is empty
	flushing bool
	flushed  *sync.Cond // signals the end of a flush; uses mu
	err      error      // error of the first failed flush
}

// NewRecorder returns the recorder of an attempt. asks reports whether each step asks a model.
func NewRecorder(record func(context.Context, ledger.Attempt, ...ledger.Entry) error, a ledger.Attempt, r *redact.Redactor, asks bool) *Recorder {
	out := &Recorder{record: record, attempt: a, redact: r, asks: asks}
	out.flushed = sync.NewCond(&out.mu)
	return out
}

func (r *Recorder) clean(raw json.RawMessage) json.RawMessage {
	return r.redact.JSON(raw)
}

func (r *Recorder) step(s loop.Step) steps.Step {
	return steps.Step{
		Run: r.attempt.Run, Attempt: r.attempt.Number, Number: s.Number, ParentCall: s.ParentCall, Message: r.clean(s.Message), Text: r.redact.Replace(s.Text), Model: s.Model, Notices: s.Notices,
		Usage:   Usage(s.Spent),
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
	// A step within a call always asks a model. A step that asks no model has no effect and is no
	// barrier.
	return r.add(ctx, durability{barrier: r.asks || s.ParentCall != ""}, steps.StepStarted(r.step(s)))
}

// FinishStep implements loop.Recorder.
func (r *Recorder) FinishStep(ctx context.Context, s loop.Step) error {
	return r.add(ctx, durability{tells: r.asks}, steps.StepFinished(r.step(s)))
}

// StartCall implements loop.Recorder.
func (r *Recorder) StartCall(ctx context.Context, c loop.Call) error {
	mayLag := r.mayLag(c)
	return r.add(ctx, durability{barrier: c.Effect != domain.EffectRead && !mayLag, depends: mayLag}, steps.CallStarted(r.call(c)))
}

// FinishCall implements loop.Recorder.
func (r *Recorder) FinishCall(ctx context.Context, c loop.Call) error {
	d := durability{made: c.Effect != domain.EffectRead}
	switch {
	case r.mayLag(c):
		d.tells = c.State != domain.CallDone // the result of a done call contains no information
		d.barrier = d.tells
	default:
		d.tells, d.barrier = true, c.Effect != domain.EffectRead && c.Effect != domain.EffectDatabase
	}
	return r.add(ctx, d, steps.CallFinished(r.call(c)))
}

// AnswerCall implements loop.Recorder. It may lag, because the next attempt answers the call in the
// same way.
func (r *Recorder) AnswerCall(ctx context.Context, c loop.Call) error {
	d := durability{made: c.Effect != domain.EffectRead, tells: c.State != domain.CallReplayed} // a replayed answer is already recorded
	return r.add(ctx, d, steps.CallStarted(r.call(c)), steps.CallFinished(r.call(c)))
}

// Flush waits until all entries are durable, unless end will commit the last entries.
func (r *Recorder) Flush(ctx context.Context) error {
	if r.left {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.flush(ctx)
}

// LeaveEnd lets end commit the last entries with the result, unless files have to be settled first.
func (r *Recorder) LeaveEnd() { r.left = r.Settle == nil }

// End moves the last entries into a result. It flushes them instead if another attempt will read
// them.
func (r *Recorder) End(ctx context.Context, res *ledger.Result, failure error) error {
	r.left = false
	if failure != nil || !res.Outcome.Done() || res.Wait != nil {
		err := r.Flush(ctx)
		if errors.Is(failure, err) { // the flush is the failure
			return failure
		}
		return errors.Join(failure, err)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	for r.flushing {
		r.flushed.Wait()
	}
	if r.err != nil {
		return r.err
	}
	res.Record = r.take()
	r.durable = r.queued // committed with the result
	return nil
}

// mayLag reports whether a call may run before its start is durable.
func (r *Recorder) mayLag(c loop.Call) bool { return c.Once && !r.asks }

// durability describes when entries must be durable and what depends on them.
type durability struct {
	barrier bool // the caller waits until they are durable
	depends bool // a barrier if an earlier result is not durable yet
	tells   bool // the caller gets a result
	made    bool // their calls may have created files
}

func (r *Recorder) add(ctx context.Context, d durability, entries ...ledger.Entry) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}

	d.barrier = d.barrier || d.depends && r.told > r.durable || len(r.queue) >= maxQueued
	r.queue, r.queued, r.made = append(r.queue, entries...), r.queued+len(entries), r.made || d.made
	if d.tells {
		r.told = r.queued
	}
	if d.barrier {
		return r.flush(ctx)
	}
	if r.timer == nil {
		r.timer = time.AfterFunc(maxLag, r.flushLate)
	}
	return nil
}

func (r *Recorder) flushLate() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.flush(context.Background()) // later entries fail with its error
}

// flush waits until all entries added so far are durable. The caller holds mu.
func (r *Recorder) flush(ctx context.Context) error {
	for last := r.queued; r.err == nil && r.durable < last; {
		if r.flushing {
			r.flushed.Wait()
		} else {
			r.writeQueue(context.WithoutCancel(ctx)) // other callers wait for the same write
		}
	}
	return r.err
}

// writeQueue writes the whole queue. The caller holds mu; writeQueue releases it during the write.
func (r *Recorder) writeQueue(ctx context.Context) {
	settles := r.made && r.Settle != nil
	entries := r.take()
	r.flushing = true
	r.mu.Unlock()

	var err error
	if settles {
		err = r.Settle(ctx)
	}
	if err == nil {
		err = r.record(ctx, r.attempt, entries...)
	}

	r.mu.Lock()
	r.flushing, r.err = false, err // it was nil
	if err == nil {
		r.durable += len(entries)
	}
	r.flushed.Broadcast()
}

func (r *Recorder) take() []ledger.Entry {
	all := r.queue
	r.queue, r.made = nil, false
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	return all
}

// AppendEvent records an event of a run, or of no run if run is zero.
func AppendEvent(ctx context.Context, l *ledger.Ledger, run ledger.Run, kind string, about any) error {
	data, err := json.Marshal(about)
	if err != nil {
		return err
	}
	return l.Events.Append(ctx, ledger.Event{Run: run.ID, Job: run.Job, Kind: kind, Data: data})
}

// Usage returns the usage of a step as the ledger records it.
func Usage(s loop.Spent) ledger.Usage {
	return ledger.Usage{TokensIn: s.Usage.Input, TokensOut: s.Usage.Output, TokensCached: s.Usage.Cached, CostMicroUSD: s.CostMicroUSD,
		EstimatedTokens: s.EstimatedTokens, EstimatedMicroUSD: s.EstimatedMicroUSD}
}
