package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/runs"
	"rouse/internal/ledger/store"
)

// RecordDue records each due time in one row, queues the runs, and advances the watermarks of the
// jobs, all in one transaction. If a row exists, RecordDue keeps and returns it, so repeated
// reports are harmless. One exception: a missed time may still run if the clock was set back and
// the time is due again.
func (l *Ledger) RecordDue(ctx context.Context, now time.Time, due []Due, watermarks map[string]time.Time) ([]runs.Occurrence, error) {
	out := make([]runs.Occurrence, len(due))
	// Pauses apply at the nominal time, so a pause that has ended by now may still cover a due
	// time.
	earliest := now
	for _, d := range due {
		if d.Nominal.Before(earliest) {
			earliest = d.Nominal
		}
	}

	err := store.Write(ctx, l.DB, func(tx *store.Tx) error {
		pauses, err := pause.At(tx, earliest)
		if err != nil {
			return err
		}

		for i, d := range due {
			if out[i], err = l.recordOccurrence(tx, now, d, pauses); err != nil {
				return err
			}
		}

		for job, at := range watermarks {
			tx.Run(`update jobs set watermark = $1 where name = $2 and watermark < $1`, store.Millis(at), job)
		}

		return nil
	})

	return out, err
}

// recordOccurrence records one due time. It inserts the row first, so that a second scheduler waits
// for the first and finds its decision.
func (l *Ledger) recordOccurrence(tx *store.Tx, now time.Time, d Due, pauses []pause.Pause) (runs.Occurrence, error) {
	o := runs.Occurrence{Job: d.Job, Source: d.Source, Nominal: d.Nominal, Actual: d.Actual, Decision: d.Decision, Reason: d.Reason,
		Through: d.Through, Instants: d.Instants}
	if d.Through.IsZero() {
		o.Instants = 1
	}

	isNew, err := insertOccurrence(tx, now, o)
	if err != nil {
		return o, err
	}
	if !isNew {
		// The existing row stays, unless it was missed and may still run.
		old, err := recordedOccurrence(tx, l.DB, d)
		switch {
		case err != nil:
			return old, err
		case !d.Through.IsZero():
			return recordStretch(tx, now, old, d)
		case old.Decision != domain.DecisionMissed || d.Decision != domain.DecisionRun:
			return old, nil
		}

		if err := detachFirst(tx, now, old); err != nil {
			return old, err
		}
	}

	if d.Decision == domain.DecisionRun {
		if o.Decision, o.Reason, err = l.decideWithRuns(tx, now, d, pauses); err != nil {
			return o, err
		}
	}

	if o.Decision == domain.DecisionRun {
		a, err := enqueueDue(tx, now, d)
		if o.Run = a.Run; err != nil {
			return o, err
		}
	} else if err := record.AddEvent(tx, Event{Job: d.Job, At: now, Kind: "occurrence." + string(o.Decision)}, occurrenceData(o)); err != nil {
		return o, err
	}

	// Other decisions were inserted unchanged.
	if d.Decision != domain.DecisionRun {
		return o, nil
	}

	updateOccurrence(tx, o)
	return o, nil
}

// insertOccurrence inserts the row of a scheduled time and reports whether it is new.
func insertOccurrence(tx *store.Tx, now time.Time, o runs.Occurrence) (bool, error) {
	return store.Changed(tx, `insert into occurrences (job, nominal, actual, decision, reason, recorded_at, source, through, instants)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9) on conflict (job, nominal) do nothing`,
		o.Job, store.Millis(o.Nominal), store.Millis(o.Actual), o.Decision, o.Reason, store.Millis(now), o.Source, store.Millis(o.Through), o.Instants)
}

// updateOccurrence writes the decision about a scheduled time.
func updateOccurrence(tx *store.Tx, o runs.Occurrence) {
	tx.Run(`update occurrences set decision = $1, reason = $2, run = $3, source = $4, actual = $5 where job = $6 and nominal = $7`,
		o.Decision, o.Reason, o.Run, o.Source, store.Millis(o.Actual), o.Job, store.Millis(o.Nominal))
}

// recordStretch records a range of missed times. The first of them already has a row. If that row
// is a range, it is extended. Otherwise the rest gets its own row.
func recordStretch(tx *store.Tx, now time.Time, old runs.Occurrence, d Due) (runs.Occurrence, error) {
	if old.Through.IsZero() {
		// The first time keeps its own row, and the range begins right after it.
		if d.Instants == 1 {
			return old, nil
		}
		d.Nominal = d.Nominal.Add(time.Millisecond)
		d.Instants = max(d.Instants-1, 0)
	}

	tx.Run(`insert into occurrences (job, nominal, actual, decision, reason, recorded_at, source, through, instants)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9) on conflict (job, nominal) do update
		set through = excluded.through, instants = excluded.instants, reason = excluded.reason
		where occurrences.through <> 0 and occurrences.through < excluded.through`,
		d.Job, store.Millis(d.Nominal), store.Millis(d.Actual), d.Decision, d.Reason, store.Millis(now), d.Source, store.Millis(d.Through), d.Instants)

	return store.One(tx, runs.OccurrenceFields, runs.OneOccurrence, d.Job, store.Millis(d.Nominal))
}

// detachFirst splits the first time off a range, so that it has its own row.
func detachFirst(tx *store.Tx, now time.Time, o runs.Occurrence) error {
	if o.Through.IsZero() {
		return nil
	}
	tx.Run(`update occurrences set through = 0, instants = 1 where job = $1 and nominal = $2`, o.Job, store.Millis(o.Nominal))

	rest := Due{Job: o.Job, Source: o.Source, Nominal: o.Nominal, Actual: o.Actual, Decision: o.Decision, Reason: o.Reason, Through: o.Through, Instants: o.Instants}
	o.Through = time.Time{}
	_, err := recordStretch(tx, now, o, rest)
	return err
}

// occurrenceData returns the event data of an occurrence that does not run.
func occurrenceData(o runs.Occurrence) map[string]any {
	data := map[string]any{"nominal": o.Nominal.UTC(), "reason": o.Reason}
	if !o.Through.IsZero() {
		data["through"], data["instants"] = o.Through.UTC(), o.Instants
	}
	return data
}

// recordedOccurrence reads the row of a scheduled time. On PostgreSQL it locks the row. If two
// schedulers see the same missed time again, the second then finds the decision of the first.
func recordedOccurrence(tx *store.Tx, db *store.DB, d Due) (runs.Occurrence, error) {
	query := runs.OneOccurrence
	if db.ForUpdate != "" {
		// PostgreSQL cannot lock the nullable side of the outer join.
		query += db.ForUpdate + ` of o`
	}
	return store.One(tx, runs.OccurrenceFields, query, d.Job, store.Millis(d.Nominal))
}

func enqueueDue(tx *store.Tx, now time.Time, d Due) (Accepted, error) {
	detail, err := instantDetail(d)
	if err != nil {
		return Accepted{}, err
	}

	var notBefore time.Time // zero if Actual has passed: a clock that is set back must not delay the run
	if d.Actual.After(now) {
		notBefore = d.Actual
	}

	return insertRun(tx, now, Request{Job: d.Job, Agent: d.Agent, Trigger: domain.TriggerSchedule, ScheduledAt: d.Nominal, NotBefore: notBefore},
		instantKey(d), detail)
}

// instantDetail returns the trigger detail of a scheduled run, as JSON.
func instantDetail(d Due) (string, error) {
	nominal := d.Nominal.UTC()
	detail, err := json.Marshal(TriggerDetail{Source: d.Source, Nominal: &nominal})
	return string(detail), err
}

// instantKey returns the run key of a scheduled time, so that the time gets only one run.
func instantKey(d Due) string { return fmt.Sprintf("time/%s/%d", d.Job, store.Millis(d.Nominal)) }

// decideWithRuns decides about a due time, considering the job's other runs in the ledger.
func (l *Ledger) decideWithRuns(tx *store.Tx, now time.Time, d Due, pauses []pause.Pause) (decision domain.Decision, reason string, err error) {
	begun, most := OverlapCandidates(d.Overlap)
	others, err := store.List(tx, record.RunFields, overlappingRuns+l.ForUpdate, d.Job, store.Flag(begun), most)
	if err != nil {
		return "", "", err
	}

	decision, reason, cancel := DecideDue(d, others, pauses)
	if !cancel {
		return decision, reason, nil
	}

	// The runs are cancelled in the transaction that queues their successor, so that both happen or
	// neither.
	for _, r := range others {
		if err := l.cancelRun(tx, r, replacedReason, now); err != nil {
			return "", "", err
		}
	}

	return decision, reason, nil
}

// Backfill queues runs for past scheduled times without a run, or with a run that was skipped
// before it began. It uses one transaction, and the reason of each row names its previous decision.
// A time that already ran keeps its row and its run, so repeated calls are harmless.
//
// Backfill ignores pauses and overlaps when it queues. A pause still keeps the runs from starting,
// and they wait behind all other runs (Run.Yields). The decisions of due are ignored. The rows are
// returned in the order of due.
func (l *Ledger) Backfill(ctx context.Context, now time.Time, due []Due) ([]runs.Occurrence, error) {
	return store.InTx(ctx, l.DB, func(tx *store.Tx) ([]runs.Occurrence, error) {
		out := make([]runs.Occurrence, len(due))
		for i, d := range due {
			var err error
			if out[i], err = backfillOne(tx, l.DB, now, d); err != nil {
				return nil, err
			}
		}
		return out, nil
	})
}

// backfillOne backfills one scheduled time. Like recordOccurrence it inserts the row first, so that
// a second writer finds the decision of the first.
func backfillOne(tx *store.Tx, db *store.DB, now time.Time, d Due) (runs.Occurrence, error) {
	o := runs.Occurrence{Job: d.Job, Source: d.Source, Nominal: d.Nominal, Actual: d.Actual, Decision: domain.DecisionRun, Instants: 1}
	isNew, err := insertOccurrence(tx, now, o)
	if err != nil {
		return o, err
	}

	o.Reason = "backfilled"
	if !isNew {
		old, err := recordedOccurrence(tx, db, d)
		if err != nil || old.Decision == domain.DecisionRun {
			return old, err
		}
		if err := detachFirst(tx, now, old); err != nil {
			return old, err
		}
		o.Reason = strings.TrimSuffix(fmt.Sprintf("backfilled, was %s: %s", old.Decision, old.Reason), ": ")
	}

	detail, err := instantDetail(d)
	if err != nil {
		return o, err
	}

	// A skipped run already has the key of this time; add its id to the key of the next run.
	key := instantKey(d)
	request := Request{Job: d.Job, Agent: d.Agent, Trigger: domain.TriggerBackfill, ScheduledAt: d.Nominal}
	a, err := insertRun(tx, now, request, key, detail)
	for a.Outcome == domain.OutcomeSkipped {
		a, err = insertRun(tx, now, request, fmt.Sprintf("%s/%d", key, a.Run), detail)
	}
	if err != nil {
		return o, err
	}

	o.Run, o.Outcome = a.Run, a.Outcome
	updateOccurrence(tx, o)
	return o, nil
}
