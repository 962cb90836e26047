package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/pause"
)

// recorder executes attempts and records how runs end.
type recorder struct {
	o   *Options
	log *slog.Logger
	// drained is closed when the drain period is over. Results that are not written by then are
	// left to the next start.
	drained chan struct{}
}

// execute runs one attempt to its end and records it.
func (e *recorder) execute(work, writing context.Context, run ledger.Run, a ledger.Attempt, do ExecutorFunc) {
	e.log.Debug("a run starts", "job", run.Job, "run", run.ID, "attempt", a.Number)
	res, err := e.executeSafely(work, do, run, a)
	if err != nil {
		res.Outcome, res.Error = domain.OutcomeError, err.Error()
		res = e.o.Executor.OnFinalize(writing, run, res)
	}

	var stop *Stop
	errors.As(context.Cause(work), &stop)

	switch {
	case stop == nil || res.Outcome.Done() || res.Wait != nil: // results from before the stop count
	case stop.outcome == domain.OutcomeInterrupted:
		e.record(run, func() error { return e.park(writing, run, a, stop, res) })
		return
	case res.Outcome != stop.outcome: // the stop decides, not the executor's result
		res.Outcome, res.Error = stop.outcome, stop.reason
	}

	e.record(run, func() error { return e.finish(writing, run, a, res) })
}

// executeSafely turns a panic of the executor into an error, so that the daemon survives it.
func (e *recorder) executeSafely(ctx context.Context, do ExecutorFunc, run ledger.Run, a ledger.Attempt) (res ledger.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			e.log.Error("a run failed by a defect of rouse", "job", run.Job, "run", run.ID, "panic", p, "stack", string(debug.Stack()))
			res, err = ledger.Result{}, fmt.Errorf("the run failed by a defect of rouse: %v", p)
		}
	}()

	res, err = do(ctx, run, a)
	if err == nil && res.Outcome == "" && res.Wait == nil {
		err = errors.New("the run failed by a defect of rouse: it ended without an outcome")
	}
	return res, err
}

// record writes the end of an attempt. If writing fails (for example because the disk is full), the
// attempt keeps its lane, so that no other run starts in it. record tries again until the drain
// period is over. The next start then rescues the attempt.
func (e *recorder) record(run ledger.Run, write func() error) {
	for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
		err := write()
		switch {
		case err == nil:
			return
		case errors.Is(err, ledger.ErrFenced), errors.Is(err, ledger.ErrLeaseLost):
			e.log.Warn("a late result was dropped", "job", run.Job, "run", run.ID, "error", err)
			return
		}

		e.log.Error("the end of a run could not be recorded; it is tried again", "job", run.Job, "run", run.ID, "in", wait.String(), "error", err)
		select {
		case <-time.After(wait):
		case <-e.drained:
			return
		}
	}
}

// finishWaiting parks a run that needs an answer and notifies its owner.
func (e *recorder) finishWaiting(ctx context.Context, run ledger.Run, a ledger.Attempt, res ledger.Result) error {
	if res.Wait.Expires <= 0 {
		res.Wait.Expires = defaultAnswerWait
	}
	res.Notices = e.o.Executor.QuestionNotices(run, res)
	if res.Wait.Kind == inbox.KindPause {
		e.log.Info("a run was paused by its skill", "job", run.Job, "run", run.ID, "reason", res.Wait.Message)
	} else {
		e.log.Info("a run waits for an answer", "job", run.Job, "run", run.ID, "question", res.Wait.Message, "until", e.o.Now().Add(res.Wait.Expires))
	}
	return e.o.Ledger.Finish(ctx, a, res)
}

// expireQuestions ends the runs with questions that were not answered in time.
func (e *recorder) expireQuestions(writing context.Context, now time.Time) error {
	overdue, err := e.o.Ledger.Inbox.Overdue(writing, now)
	if err != nil {
		return err
	}

	for _, i := range overdue {
		run, err := e.o.Ledger.Runs.Get(writing, i.Run)
		if err != nil {
			return err
		}

		res := ledger.Result{Outcome: domain.OutcomeTimeout, Error: fmt.Sprintf("nobody answered within %s: %s", i.ExpiresAt.Sub(i.CreatedAt), i.Message)}
		res = e.o.Executor.OnFinalize(writing, run, res)
		res.Tell = e.o.Executor.EndNotices(run, res)
		res.Pause = e.pauseRule(run, res)
		if err := e.o.Ledger.ExpireItem(writing, i.ID, res); err != nil {
			return err
		}

		e.log.Warn("a question was not answered in time", "job", run.Job, "run", run.ID, "question", i.Message)
	}

	return nil
}

// pauseRule returns the rule that pauses the job after too many failed runs in a row, or the zero
// rule.
func (e *recorder) pauseRule(run ledger.Run, res ledger.Result) pause.Rule {
	after := e.o.Executor.Policy(run.Job).PauseAfter
	if after <= 0 || !res.Outcome.Failed() {
		return pause.Rule{}
	}
	return pause.Rule{After: after, Notices: e.o.Executor.PauseNotices(run, res, after)}
}

func (e *recorder) finish(ctx context.Context, run ledger.Run, a ledger.Attempt, res ledger.Result) error {
	p := e.o.Executor.Policy(run.Job)
	if res.Wait != nil {
		return e.finishWaiting(ctx, run, a, res)
	}

	if res.Postpone != nil {
		at, tooLate := postponedTo(p, run, res.Postpone.Until, e.o.Now())
		if tooLate == "" {
			res.RetryAt, res.Notices = at, append(res.Notices, res.Postpone.Notices...)
		} else {
			res.Postpone, res.Error = nil, res.Error+"; "+tooLate
		}
	}

	// Interruptions, questions and waits for a model do not count as failed tries.
	tries := a.Number - run.Interruptions - run.Parks - run.Postponements
	if res.Postpone == nil && tries < p.Attempts && slices.Contains(p.On, res.Outcome) && res.Outcome != domain.OutcomeCancelled {
		res.RetryAt = e.o.Now().Add(backoff(p, run.ID, tries))
	}

	// A failure that is tried again causes no notices and does not count towards a pause.
	if res.RetryAt.IsZero() {
		res.Tell = e.o.Executor.EndNotices(run, res)
		res.Pause = e.pauseRule(run, res)
	}

	level := slog.LevelInfo
	if res.Outcome.Failed() {
		level = slog.LevelWarn
	}

	said := res.Summary
	if res.Error != "" {
		said = res.Error
	}

	log := e.log.With("job", run.Job, "run", run.ID, "attempt", a.Number, "outcome", res.Outcome, "summary", said)
	switch {
	case res.RetryAt.IsZero():
		log.Log(ctx, level, "run finished")
	case res.Postpone != nil:
		log.Log(ctx, level, "a run waits for its model", "at", res.RetryAt)
	default:
		log.Log(ctx, level, "a run is tried again", "at", res.RetryAt)
	}

	return e.o.Ledger.Finish(ctx, a, res)
}
