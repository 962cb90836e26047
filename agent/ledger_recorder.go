package agent

import (
	"cmp"
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

// How long, and how much of, the record of calls may come behind them that only read, or change nothing when they are made again.
const (
	holdFor  = 100 * time.Millisecond
	holdMost = 256 // entries
)

// Recorder writes the loop's steps and calls into the ledger, fenced by the attempt. What
// begins is on disk before it does, unless it only reads. What has ended is written together with what begins next,
// in one transaction, unless that may take a while, or the effect of a call could be lost:
// a read is made again after a crash, and an agent's database knows what was done. A step in which no
// model is asked does nothing by itself, so it begins with its first call.
//
// The calls of a module that write into its own storage (loop.Call.Once) begin without a record, and have one within a tenth of
// a second: the storage notes them with what they write, and a module that is run again makes the same ones. What it
// would do otherwise if it were lost is on disk before them: what it has read, and when.
type Recorder struct {
	ledger  *ledger.Ledger
	attempt ledger.Attempt
	redact  *redact.Redactor
	asks    bool                        // a model, in each step
	settle  func(context.Context) error // comes before calls are on record that may have made files; nil: nobody wants to know
	left    bool                        // what the loop leaves is for end

	mu    sync.Mutex
	held  []ledger.Entry // in the order in which it came
	told  bool           // something of it was told to who calls
	made  bool           // something of it, or of what comes with it, may have made files
	open  int            // calls that have begun
	timer *time.Timer    // writes what is held, nil when nothing waits for that
	err   error          // of that

	behind   sync.Mutex // held while that writes
	settling sync.Mutex // held while settle is asked
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
	when := atOnce
	if !r.asks && s.ParentCall == "" {
		when = withNext
	}
	return r.write(ctx, 0, when, ledger.StepStarted(r.step(s)))
}

// FinishStep implements loop.Recorder.
func (r *Recorder) FinishStep(ctx context.Context, s loop.Step) error {
	when := withNext
	if r.asks { // a model has answered
		when = withNextTold
	}
	return r.write(ctx, 0, when, ledger.StepFinished(r.step(s)))
}

// StartCall implements loop.Recorder.
func (r *Recorder) StartCall(ctx context.Context, c loop.Call) error {
	if r.mayLag(c) {
		return r.lag(ctx, false, ledger.CallStarted(r.call(c)))
	}
	// Nothing is lost with one that only reads, but that it is known to be on, which is so a moment later.
	if c.Effect == domain.EffectRead {
		return r.hold(ctx, false, ledger.CallStarted(r.call(c)))
	}
	return r.write(ctx, 1, atOnce, ledger.CallStarted(r.call(c)))
}

// FinishCall implements loop.Recorder.
func (r *Recorder) FinishCall(ctx context.Context, c loop.Call) error {
	r.noteMade(c)
	if r.mayLag(c) {
		return r.lag(ctx, c.State != domain.CallDone, ledger.CallFinished(r.call(c)))
	}

	// These are safe to lose: a read is made again, and the database knows what was done.
	if c.Effect == domain.EffectRead {
		return r.hold(ctx, true, ledger.CallFinished(r.call(c)))
	}
	when := atOnce
	if c.Effect == domain.EffectDatabase {
		when = withNextTold
	}
	return r.write(ctx, -1, when, ledger.CallFinished(r.call(c)))
}

// AnswerCall implements loop.Recorder. It is safe to lose: the next attempt answers it as this one did.
func (r *Recorder) AnswerCall(ctx context.Context, c loop.Call) error {
	r.noteMade(c)
	call, when := r.call(c), withNextTold
	if c.State == domain.CallReplayed { // what it tells is on record
		when = withNext
	}
	return r.write(ctx, 0, when, ledger.CallStarted(call), ledger.CallFinished(call))
}

// Flush writes what was held back; the loop calls it when the run is over. A record that is left to the end of the attempt waits
// for it.
func (r *Recorder) Flush(ctx context.Context) error {
	if r.left {
		return nil
	}
	return r.write(ctx, 0, atOnce)
}

// leaveEnd has what the loop leaves be committed together with the end of the attempt. What comes along of files that were made has
// to be known before that, so that it is not left then.
func (r *Recorder) leaveEnd() { r.left = r.settle == nil }

// end gives what is left of the record to a result that is committed with it, or writes it, where the attempt did not come to an
// end that is: what follows of a failure reads the record.
func (r *Recorder) end(ctx context.Context, res *ledger.Result, failure error) error {
	r.left = false
	if failure != nil || !res.Outcome.Done() || res.Wait != nil {
		return errors.Join(failure, r.Flush(ctx))
	}

	r.mu.Lock()
	res.Record = r.take(nil)
	r.mu.Unlock()
	return r.caughtUp()
}

// moment is when entries are written.
type moment int

const (
	atOnce       moment = iota
	withNext            // with what comes next
	withNextTold        // so, too, but before a call without a record: it may depend on them
)

// write writes entries after those that were held back, or holds them back, too: never while
// a call is on, which may take its time. began is how many calls there are more.
func (r *Recorder) write(ctx context.Context, began int, when moment, entries ...ledger.Entry) error {
	r.mu.Lock()
	r.open += began
	if when != atOnce && r.open == 0 {
		r.held, r.told = append(r.held, entries...), r.told || when == withNextTold
		r.mu.Unlock()
		return nil
	}

	entries = r.take(entries)
	r.mu.Unlock()
	if err := r.caughtUp(); err != nil || len(entries) == 0 {
		return err
	}
	return r.record(ctx, entries)
}

// record writes entries, once it is known what comes along of what their calls made.
func (r *Recorder) record(ctx context.Context, entries []ledger.Entry) error {
	if err := r.settleMade(ctx); err != nil {
		return err
	}
	return r.ledger.Record(ctx, r.attempt, entries...)
}

// settleMade returns once it is known what comes along of what the calls so far have made.
func (r *Recorder) settleMade(ctx context.Context) error {
	if r.settle == nil {
		return nil
	}
	r.settling.Lock() // whoever else writes waits for it, too
	defer r.settling.Unlock()

	r.mu.Lock()
	made := r.made
	r.made = false
	r.mu.Unlock()
	if !made {
		return nil
	}
	err := r.settle(ctx)
	if err != nil {
		r.mu.Lock()
		r.made = true
		r.mu.Unlock()
	}
	return err
}

// noteMade remembers that a call may have made files.
func (r *Recorder) noteMade(c loop.Call) {
	if c.Effect == domain.EffectRead {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made = true
}

// take is all that is to be written now: what was held, and more.
func (r *Recorder) take(more []ledger.Entry) []ledger.Entry {
	all := append(r.held, more...)
	r.held, r.told = nil, false
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	return all
}

// mayLag says whether the record of a call may come behind it: where the next attempt is sure to make it, as a module does and a model
// may not.
func (r *Recorder) mayLag(c loop.Call) bool { return c.Once && !r.asks }

// lag holds an entry for a while, unless what is held has to be on record before anything happens.
func (r *Recorder) lag(ctx context.Context, told bool, e ledger.Entry) error {
	r.mu.Lock()
	wait := r.open > 0 || r.told || told
	r.mu.Unlock()
	if wait {
		return r.write(ctx, 0, atOnce, e)
	}
	return r.hold(ctx, false, e)
}

// hold has an entry written with what comes next, or a while later by itself; told says that something of it was told to who calls.
func (r *Recorder) hold(ctx context.Context, told bool, e ledger.Entry) error {
	r.mu.Lock()
	if len(r.held) >= holdMost || r.err != nil {
		r.mu.Unlock()
		return r.write(ctx, 0, atOnce, e)
	}
	defer r.mu.Unlock()

	r.held, r.told = append(r.held, e), r.told || told
	if r.timer == nil {
		r.timer = time.AfterFunc(holdFor, r.catchUp)
	}
	return nil
}

// catchUp writes what was held for long enough, beside the calls that go on.
func (r *Recorder) catchUp() {
	r.behind.Lock()
	defer r.behind.Unlock()

	r.mu.Lock()
	entries := r.take(nil)
	r.mu.Unlock()
	if len(entries) == 0 {
		return
	}

	err := r.record(context.Background(), entries)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = cmp.Or(r.err, err)
}

// caughtUp waits until what was written beside the calls is on disk: whatever is written next comes behind it.
func (r *Recorder) caughtUp() error {
	r.behind.Lock()
	defer r.behind.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}
