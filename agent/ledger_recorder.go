package agent

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"rouse/agent/loop"
	"rouse/agent/redact"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// Entries that may lag are durable after maxLag, or as soon as maxQueued of them wait.
const (
	maxLag    = 100 * time.Millisecond
	maxQueued = 256
)

// Recorder writes the loop's steps and calls into the ledger, fenced by the attempt.
//
// All entries of the attempt pass through one queue, in the order in which they came. One flush writes at a time, and it
// takes the whole queue in one transaction. So the ledger has the entries in that order, and an end never precedes its start.
//
// An entry is a barrier or may lag. A barrier returns when it and all entries before it are durable. The start of a call with an
// effect is one, and so is the end of a call that cannot be repeated, and the start of a step that asks a model. All other
// entries are written with the next barrier, or after maxLag: a read is repeated after a crash, and the journal of an
// agent's database knows what was done. The last ones are committed with the result of the attempt.
//
// Calls of a module into its own storage (loop.Call.Once) may lag too. The storage journals each call with its
// data, and a restarted module makes the same calls. Whatever it was told before is durable first,
// because the module may depend on it.
//
// The first error is final: later entries are refused with it.
type Recorder struct {
	record  func(context.Context, ledger.Attempt, ...ledger.Entry) error
	attempt ledger.Attempt
	redact  *redact.Redactor
	asks    bool // each step asks a model
	// settle is called before calls that may have made files are recorded. Optional.
	settle func(context.Context) error
	left   bool // the last entries are for end

	mu       sync.Mutex
	queue    []ledger.Entry // not durable, and not being written
	queued   int            // entries that ever came
	durable  int            // how many of them are durable
	told     int            // the place of the last one that told the caller something
	made     bool           // a call in the queue may have made files
	timer    *time.Timer    // flushes the queue after maxLag; nil while the queue is empty
	flushing bool
	flushed  *sync.Cond // of mu: a flush has ended
	err      error      // of the first flush that failed
}

// NewRecorder gives the loop its record of one attempt, without the secrets. asks says that a model is asked in each step.
func NewRecorder(l *ledger.Ledger, a ledger.Attempt, secrets []string, asks bool) *Recorder {
	return newRecorder(l.Record, a, redactor(secrets), asks)
}

func newRecorder(record func(context.Context, ledger.Attempt, ...ledger.Entry) error, a ledger.Attempt, r *redact.Redactor, asks bool) *Recorder {
	out := &Recorder{record: record, attempt: a, redact: r, asks: asks}
	out.flushed = sync.NewCond(&out.mu)
	return out
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
	// A step within a call asks a model, whatever those of the run do. One that asks no model does nothing by itself.
	return r.add(ctx, durability{barrier: r.asks || s.ParentCall != ""}, ledger.StepStarted(r.step(s)))
}

// FinishStep implements loop.Recorder.
func (r *Recorder) FinishStep(ctx context.Context, s loop.Step) error {
	return r.add(ctx, durability{tells: r.asks}, ledger.StepFinished(r.step(s)))
}

// StartCall implements loop.Recorder.
func (r *Recorder) StartCall(ctx context.Context, c loop.Call) error {
	mayLag := r.mayLag(c)
	return r.add(ctx, durability{barrier: c.Effect != domain.EffectRead && !mayLag, depends: mayLag}, ledger.CallStarted(r.call(c)))
}

// FinishCall implements loop.Recorder.
func (r *Recorder) FinishCall(ctx context.Context, c loop.Call) error {
	d := durability{made: c.Effect != domain.EffectRead}
	switch {
	case r.mayLag(c):
		d.tells = c.State != domain.CallDone // its result tells nothing otherwise
		d.barrier = d.tells
	default:
		d.tells, d.barrier = true, c.Effect != domain.EffectRead && c.Effect != domain.EffectDatabase
	}
	return r.add(ctx, d, ledger.CallFinished(r.call(c)))
}

// AnswerCall implements loop.Recorder. It may lag: the next attempt answers the call in the same way.
func (r *Recorder) AnswerCall(ctx context.Context, c loop.Call) error {
	d := durability{made: c.Effect != domain.EffectRead, tells: c.State != domain.CallReplayed} // a replayed answer is on record
	return r.add(ctx, d, ledger.CallStarted(r.call(c)), ledger.CallFinished(r.call(c)))
}

// Flush returns when all entries are durable, or at once if the last ones are left to the end of the attempt.
// The loop calls it when the run is over.
func (r *Recorder) Flush(ctx context.Context) error {
	if r.left {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.flush(ctx)
}

// leaveEnd leaves the last entries to the result of the attempt. With settle they are flushed before, because files
// have to be settled before the calls that made them are recorded.
func (r *Recorder) leaveEnd() { r.left = r.settle == nil }

// end moves the last entries into a result, which commits them. If the attempt is to be continued or repeated, it flushes them
// instead, because the next attempt reads the record.
func (r *Recorder) end(ctx context.Context, res *ledger.Result, failure error) error {
	r.left = false
	if failure != nil || !res.Outcome.Done() || res.Wait != nil {
		err := r.Flush(ctx)
		if errors.Is(failure, err) { // it is what failed
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
	r.durable = r.queued // with the result
	return nil
}

// mayLag reports whether a call may run before its start is durable: the next attempt is sure to repeat it, because a module
// repeats its calls. A model may not.
func (r *Recorder) mayLag(c loop.Call) bool { return c.Once && !r.asks }

// durability says when entries have to be durable, and what depends on them.
type durability struct {
	barrier bool // the caller waits until they are durable
	depends bool // and so it does while something that it was told is not
	tells   bool // they tell the caller something
	made    bool // their calls may have made files
}

// add puts entries at the end of the queue.
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

// flushLate flushes the queue after maxLag.
func (r *Recorder) flushLate() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.flush(context.Background()) // later entries are refused with its error
}

// flush returns when all entries that have come so far are durable. The caller holds mu.
func (r *Recorder) flush(ctx context.Context) error {
	for last := r.queued; r.err == nil && r.durable < last; {
		if r.flushing {
			r.flushed.Wait()
		} else {
			r.writeQueue(context.WithoutCancel(ctx)) // other callers wait for it, too
		}
	}
	return r.err
}

// writeQueue makes the whole queue durable. The caller holds mu, which is free meanwhile.
func (r *Recorder) writeQueue(ctx context.Context) {
	settles := r.made && r.settle != nil
	entries := r.take()
	r.flushing = true
	r.mu.Unlock()

	var err error
	if settles {
		err = r.settle(ctx)
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

// take empties the queue. The caller holds mu.
func (r *Recorder) take() []ledger.Entry {
	all := r.queue
	r.queue, r.made = nil, false
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	return all
}
