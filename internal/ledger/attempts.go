package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/incident"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
	"rouse/internal/ledger/workspace"
)

// Started is the result of Start for one run.
type Started struct {
	Run     Run
	Attempt Attempt
	Err     error // ErrNotClaimable or ErrNotFound
}

// Start moves queued runs, and runs that wait for a retry or to resume, to running. It uses one
// transaction. A run that cannot start gets an error in its Started. This includes runs
// without a free lane on any node, and runs of an agent that another node keeps.
func (l *Ledger) Start(ctx context.Context, starts ...Start) ([]Started, error) {
	// A lost file could not record the run.
	if err := l.CheckFile(ctx); err != nil {
		return nil, err
	}

	now := l.Now()
	out := make([]Started, len(starts))
	err := store.Write(ctx, l.DB, func(tx *store.Tx) error {
		if l.Postgres != nil { // taken before the lock of a run or a claim, to avoid deadlocks between processes
			tx.Run(`select pg_advisory_xact_lock($1::int, $2::int)`, l.Class, store.LockLanes)
		}
		for i, s := range starts {
			started, err := l.startRun(tx, s, now)
			// These errors concern one run; the other runs of the batch still start.
			if err != nil && !errors.Is(err, ErrNotClaimable) && !errors.Is(err, ErrNotFound) {
				return err
			}
			out[i] = startedRun(s.Run, started, now, err)
		}
		return nil
	})

	return out, err
}

func startedRun(id int64, r Run, now time.Time, err error) Started {
	return Started{r, Attempt{Run: id, Number: r.Attempt, State: domain.AttemptRunning, StartedAt: store.Instant(store.Millis(now))}, err}
}

// StartAttempt starts a single run without limits.
func (l *Ledger) StartAttempt(ctx context.Context, run int64) (Run, Attempt, error) {
	started, err := l.Start(ctx, Start{Run: run})
	if err != nil {
		return Run{}, Attempt{}, err
	}
	return started[0].Run, started[0].Attempt, started[0].Err
}

// waitingBeside selects the oldest other run of a job that waits for a person.
const waitingBeside = `select ` + record.RunColumns + ` from runs where job = $1 and id <> $2 and state = 'waiting' and waiting_for in ('input', 'approval', 'pause') and state <> 'finished' order by id limit 1`

// checkBehind returns ErrNotClaimable if Start.Behind is set for a queued scheduled run and another
// run of its job waits for a person.
func checkBehind(tx *store.Tx, r Run, s Start) error {
	if !s.Behind || !r.Behind() {
		return nil
	}
	before, err := store.List(tx, record.RunFields, waitingBeside, r.Job, r.ID)
	if err != nil || len(before) == 0 {
		return err
	}
	return fmt.Errorf("run %d starts after run %d, which %s: %w", r.ID, before[0].ID, before[0].WaitText(), ErrNotClaimable)
}

func (l *Ledger) startRun(tx *store.Tx, s Start, now time.Time) (Run, error) {
	run := s.Run
	r, err := record.LockRun(tx, l.DB, run)
	if err != nil {
		return Run{}, err
	}
	if err := checkBehind(tx, r, s); err != nil {
		return Run{}, err
	}
	next, err := nextAttempt(r, now)
	if err == nil && l.Postgres != nil {
		err = l.Nodes.CheckStart(tx, r, s.AgentLanes, s.JobLanes, now)
	}
	if err != nil {
		return Run{}, err
	}
	r = next

	tx.Run(`update runs set state = 'running', waiting_for = '', not_before = 0, attempt = $1, started_at = $2 where id = $3`,
		r.Attempt, store.Millis(r.StartedAt), run)
	endBlock(tx, r, now)
	tx.Run(`insert into attempts (run, number, state, started_at, node, job) values ($1, $2, 'running', $3, $4, $5)`, run, r.Attempt, store.Millis(now), store.NodeID(l.DB), s.Job)

	return r, record.AddEvent(tx, Event{Run: run, Job: r.Job, At: now, Kind: "run.started"}, map[string]any{"attempt": r.Attempt})
}

// nextAttempt returns a run as it is once its next attempt has started.
func nextAttempt(r Run, now time.Time) (Run, error) {
	if !r.Claimable() {
		return r, fmt.Errorf("run %d is %s: %w", r.ID, r.State, ErrNotClaimable)
	}

	r.State, r.WaitingFor, r.NotBefore, r.Attempt = domain.StateRunning, "", time.Time{}, r.Attempt+1
	// The start of the run is the start of its first attempt.
	if r.StartedAt.IsZero() {
		r.StartedAt = store.Instant(store.Millis(now))
	}
	return r, nil
}

// Finish ends an attempt. In one transaction it commits the rest of the attempt's record, the
// outcome, the event, the notices, and the pending move of the run's file. With RetryAt, the run
// waits for its next attempt instead, unless it is to be cancelled. With Wait, the run waits for an
// answer.
func (l *Ledger) Finish(ctx context.Context, a Attempt, res Result) error {
	defer l.Blobs.Hold()()
	left, err := record.PackEntries(ctx, l.Blobs, res.Record)
	if err != nil {
		return err
	}

	now := l.Now()
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		res := res // the operation may run more than once
		r, err := record.CheckFence(tx, l.DB, a)
		if err != nil {
			return err
		}
		if err := left.Write(tx, a, r.Job); err != nil {
			return err
		}

		state := domain.AttemptDone
		switch {
		case res.Wait != nil:
			state = domain.AttemptWaiting
		case res.Outcome.Failed():
			state = domain.AttemptFailed
		}
		if err := l.endAttempt(tx, a, state, res.Error, now); err != nil {
			return err
		}
		addUsage(tx, a.Run, res)

		// A request to cancel the run overrides a retry or a question.
		if (!res.RetryAt.IsZero() || res.Wait != nil) && r.CancelReason != "" {
			res.Outcome, res.Error, res.RetryAt, res.Wait = domain.OutcomeCancelled, r.CancelReason, time.Time{}, nil
		}
		if res.Wait != nil {
			return inbox.Park(tx, r, *res.Wait, res.Notices, now)
		}

		if res.RetryAt.IsZero() {
			// No later attempt will ask about calls with an unknown effect, so the owner is
			// notified now.
			if res.Outcome.Failed() || res.Outcome == domain.OutcomeCancelled {
				if err := inbox.AddUncertainCallInfos(tx, r, a.Number, now); err != nil {
					return err
				}
			}
			return finish(tx, l.DB, r, res, now)
		}

		kind, postponed := "run.retry", 0
		if res.Postpone != nil {
			kind, postponed = "run.postponed", 1
		}

		tx.Run(`update runs set state = 'waiting', waiting_for = 'retry', not_before = $1, error = $2, postponements = postponements + $3 where id = $4`,
			store.Millis(res.RetryAt), tx.Redact(res.Error), postponed, r.ID)

		record.AddNotices(tx, now, res.Notices...)

		return record.AddEvent(tx, Event{Run: r.ID, Job: r.Job, At: now, Kind: kind},
			map[string]any{"attempt": a.Number, "outcome": res.Outcome, "error": res.Error, "at": res.RetryAt.UTC()})
	})
}

func (l *Ledger) endAttempt(tx *store.Tx, a Attempt, state domain.AttemptState, why string, now time.Time) error {
	// The attempt can no longer settle its open reservations, so they count as spent.
	if err := l.Budget.SettleAttempt(tx, a); err != nil {
		return err
	}
	l.Nodes.EndJob(tx, a, state)
	tx.Run(`update attempts set state = $1, error = $2, finished_at = $3 where run = $4 and number = $5`, state, tx.Redact(why), store.Millis(now), a.Run, a.Number)
	return nil
}

func addUsage(tx *store.Tx, run int64, res Result) {
	tx.Run(`update runs set steps = steps + $1, calls = calls + $2, tokens_in = tokens_in + $3, tokens_out = tokens_out + $4,
		tokens_cached = tokens_cached + $5, cost_micro_usd = cost_micro_usd + $6, estimated_tokens = estimated_tokens + $7, estimated_micro_usd = estimated_micro_usd + $8 where id = $9`,
		res.Steps, res.Calls, res.Usage.TokensIn, res.Usage.TokensOut, res.Usage.TokensCached, res.Usage.CostMicroUSD, res.Usage.EstimatedTokens, res.Usage.EstimatedMicroUSD, run)
}

// finish gives a run its outcome, regardless of its state.
func finish(tx *store.Tx, db *store.DB, r Run, res Result, now time.Time) error {
	tx.Run(`update runs set state = 'finished', waiting_for = '', not_before = 0, outcome = $1, exit = $2, verified = $3, finished_at = $4,
		summary = $5, error = $6 where id = $7`,
		string(res.Outcome), string(res.Exit), store.Flag(res.Verified), store.Millis(now), tx.Redact(res.Summary), tx.Redact(res.Error), r.ID)

	endBlock(tx, r, now)
	// Only these triggers claim files. Rows with own = 1 are files that the job has written; they
	// stay in place.
	if r.Trigger == domain.TriggerWatch || r.Trigger == domain.TriggerManual {
		tx.Run(`update claims set outcome = $1, after = 'pending' where run = $2 and own = 0`, string(res.Outcome), r.ID)
	}

	inbox.Withdraw(tx, r, now)

	if r.Trigger.OfInstant() && res.Outcome == domain.OutcomeSkipped {
		tx.Run(skipOccurrence, res.Error, r.ID)
	}

	if err := workspace.RequireReviews(tx, db, r, res.Outcome, now); err != nil {
		return err
	}

	record.AddNotices(tx, now, res.Notices...)

	if err := incident.RecordEnd(tx, r, incident.Ending{Tell: res.Tell, Kind: res.Kind, Outcome: res.Outcome, Exit: res.Exit, Error: res.Error}, now); err != nil {
		return err
	}
	if err := startFollowers(tx, r, res, now); err != nil {
		return err
	}

	if res.Outcome.Failed() {
		if err := pause.Failing(tx, db, r, res.Pause, res.Error, now); err != nil {
			return err
		}
	}

	return record.AddEvent(tx, Event{Run: r.ID, Job: r.Job, At: now, Kind: "run.finished"},
		map[string]any{"outcome": res.Outcome, "exit": res.Exit, "summary": res.Summary, "error": res.Error})
}

// Statements that keep the decision of an occurrence consistent with its run: skipped with it, and
// run again after a retry.
const (
	skipOccurrence = `update occurrences set decision = 'skipped', reason = $1 where run = $2 and run <> 0`
	runOccurrence  = `update occurrences set decision = 'run', reason = 'retried manually' where run = $1 and run <> 0 and decision <> 'run'`
)

// FinishUnstarted ends a run without starting an attempt, so its start time does not change. It
// returns ErrNotClaimable if the run is running, waits for a person, or is finished.
func (l *Ledger) FinishUnstarted(ctx context.Context, run int64, res Result) error {
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		r, err := record.LockRun(tx, l.DB, run)
		if err != nil {
			return err
		}
		if !r.Claimable() {
			return fmt.Errorf("run %d is %s: %w", run, r.State, ErrNotClaimable)
		}

		return endUnstarted(tx, l.DB, r, res, l.Now())
	})
}

// endUnstarted ends a run that gets no further attempt. It notifies the owner of calls of the last
// attempt with an unknown effect, because no attempt will ask about them.
func endUnstarted(tx *store.Tx, db *store.DB, r Run, res Result, now time.Time) error {
	if err := inbox.AddUncertainCallInfos(tx, r, r.Attempt, now); err != nil {
		return err
	}
	return finish(tx, db, r, res, now)
}

// Interrupt ends an attempt after its process has died, or because it must stop. Running calls
// become uncertain if they may have had an effect, otherwise interrupted.
//
// The run then waits for its next attempt. It is finished with final if that is not nil, and as
// cancelled if a cancel was requested. The usage of the attempt comes from final if it counts any
// step or call, otherwise from the record.
func (l *Ledger) Interrupt(ctx context.Context, a Attempt, reason string, final *Result) error {
	now := l.Now()
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		r, err := record.CheckFence(tx, l.DB, a)
		if err != nil {
			return err
		}
		if err := l.endAttempt(tx, a, domain.AttemptInterrupted, reason, now); err != nil {
			return err
		}
		interruptCalls(tx, a, now)
		if err := record.AddEvent(tx, Event{Run: r.ID, Job: r.Job, At: now, Kind: "run.interrupted"}, map[string]any{"attempt": a.Number, "reason": reason}); err != nil {
			return err
		}
		tx.Run(`update runs set interruptions = interruptions + 1, state = 'waiting', waiting_for = 'resume', not_before = 0 where id = $1`, r.ID)

		// Without a final result, a requested cancel ends the run. Otherwise the run would resume.
		last := final
		if last == nil && r.CancelReason != "" {
			last = &Result{Outcome: domain.OutcomeCancelled, Error: r.CancelReason}
		}

		used, err := recordedUsage(tx, a)
		if err != nil {
			return err
		}

		if last != nil && last.Steps+last.Calls > 0 {
			used = *last
		}
		addUsage(tx, a.Run, used)
		if last == nil {
			return nil
		}
		if err := inbox.AddUncertainCallInfos(tx, r, a.Number, now); err != nil {
			return err
		}

		return finish(tx, l.DB, r, *last, now)
	})
}

// interruptCalls marks the calls that were running when an attempt was cut off. A call is uncertain
// if its effect is unknown, otherwise interrupted. A call that an earlier attempt completed was
// only being replayed, and is not uncertain.
func interruptCalls(tx *store.Tx, a Attempt, now time.Time) {
	tx.Run(`update calls set state = 'uncertain', finished_at = $1 where run = $2 and attempt = $3 and state = 'running' and effect in ('write', 'external')
		and not exists (select 1 from calls as earlier where earlier.run = $2 and earlier.attempt < $3 and earlier.key = calls.key and earlier.state in ('done', 'replayed', 'deduped'))`,
		store.Millis(now), a.Run, a.Number)
	tx.Run(`update calls set state = 'interrupted', finished_at = $1 where run = $2 and attempt = $3 and state = 'running'`, store.Millis(now), a.Run, a.Number)
}

// recordedUsage returns the usage of an attempt according to its steps and calls. In a run with a
// model, it does not count finished steps without a model name. Such steps only completed the calls
// of an earlier attempt.
func recordedUsage(tx *store.Tx, a Attempt) (Result, error) {
	var used Result
	err := tx.QueryRow(`select count(*) filter (where model <> '' or finished_at = 0 or not exists (select 1 from steps as asked where asked.run = $1 and asked.model <> '')), cast(coalesce(sum(tokens_in), 0) as bigint), cast(coalesce(sum(tokens_out), 0) as bigint),
		cast(coalesce(sum(tokens_cached), 0) as bigint), cast(coalesce(sum(cost_micro_usd), 0) as bigint),
		cast(coalesce(sum(estimated_tokens), 0) as bigint), cast(coalesce(sum(estimated_micro_usd), 0) as bigint),
		(select count(*) from calls where run = $1 and attempt = $2)
		from steps where run = $1 and attempt = $2`, a.Run, a.Number).
		Scan(&used.Steps, &used.Usage.TokensIn, &used.Usage.TokensOut, &used.Usage.TokensCached, &used.Usage.CostMicroUSD, &used.Usage.EstimatedTokens, &used.Usage.EstimatedMicroUSD, &used.Calls)
	return used, err
}

// RequestCancel ends a run at once if it is not running. For a running run it records the reason,
// which the run's dispatcher observes. A finished run is returned unchanged.
func (l *Ledger) RequestCancel(ctx context.Context, run int64, reason string) (Run, error) {
	err := store.Write(ctx, l.DB, func(tx *store.Tx) error {
		r, err := record.LockRun(tx, l.DB, run)
		if err != nil || r.State == domain.StateFinished {
			return err
		}
		return l.cancelRun(tx, r, reason, l.Now())
	})
	if err != nil {
		return Run{}, err
	}

	return l.Runs.Get(ctx, run)
}

func (l *Ledger) cancelRun(tx *store.Tx, r Run, reason string, now time.Time) error {
	if r.State != domain.StateRunning {
		return endUnstarted(tx, l.DB, r, Result{Outcome: domain.OutcomeCancelled, Error: reason}, now)
	}

	tx.Run(`update runs set cancel_reason = $1 where id = $2`, tx.Redact(reason), r.ID)
	if err := l.Nodes.CancelJob(tx, r); err != nil {
		return err
	}
	return record.AddEvent(tx, Event{Run: r.ID, Job: r.Job, At: now, Kind: "run.cancel"}, map[string]any{"reason": reason})
}

// Retry queues a finished run again. Its next attempt gets the next number. A run that waits for a
// retry becomes due at once. It returns a *BlockedError if a workspace of the run still needs a
// review by its owner.
func (l *Ledger) Retry(ctx context.Context, run int64) (Run, error) {
	err := store.Write(ctx, l.DB, func(tx *store.Tx) error {
		r, err := record.LockRun(tx, l.DB, run)
		if err != nil {
			return err
		}
		if err := workspace.CheckReview(tx, r); err != nil {
			return err
		}

		switch {
		case r.State == domain.StateFinished:
			requeue(tx, r)
		case r.WaitsForRetry():
			tx.Run(`update runs set not_before = 0, detail = $1 where id = $2`, retriedDetail(r.Detail), run)
		default:
			return fmt.Errorf("run %d is %s: %w", run, r.State, ErrNotClaimable)
		}
		return record.AddEvent(tx, Event{Run: run, Job: r.Job, At: l.Now(), Kind: "run.queued"}, map[string]any{"retry": true})
	})
	if err != nil {
		return Run{}, err
	}

	return l.Runs.Get(ctx, run)
}

// requeue queues a finished run again and reopens its file claims and its occurrence.
func requeue(tx *store.Tx, r Run) {
	tx.Run(`update runs set state = 'queued', outcome = '', exit = '', verified = 0, finished_at = 0, summary = '', error = '', cancel_reason = '',
		interruptions = 0, parks = 0, postponements = 0, blocked_since = 0, blocked_until = 0, blocked_by = '', detail = $1 where id = $2`, retriedDetail(r.Detail), r.ID)
	// An unfinished claim keeps other runs from taking the files. If the file of a claim is being
	// moved, the claim stays pending until its destination is recorded.
	tx.Run(`update claims set outcome = '', after = case when after = 'pending' then after else '' end where run = $1 and own = 0`, r.ID)
	tx.Run(runOccurrence, r.ID)
}

// retriedDetail returns the trigger detail with Retried set. It returns damaged JSON unchanged; the
// next attempt reports it.
func retriedDetail(detail json.RawMessage) string {
	var d TriggerDetail
	if json.Unmarshal(detail, &d) != nil {
		return string(detail)
	}

	d.Retried = true
	text, err := json.Marshal(d)
	if err != nil {
		return string(detail)
	}
	return string(text)
}

// Start is a request to start an attempt of a run in this process.
type Start struct {
	Run int64
	Job int64 // River job of the run, or 0
	// AgentLanes and JobLanes limit the running runs of the agent and the job on all nodes. Zero
	// means no limit. They are ignored on SQLite, where a single process counts its runs itself.
	AgentLanes, JobLanes int
	// Behind keeps a scheduled run queued while another run of its job waits for a person.
	Behind bool
}
