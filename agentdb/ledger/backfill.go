package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"rouse/agentdb/sqlite"
	"rouse/internal/domain"
)

// Backfill queues the runs of past instants that have none, or whose run was skipped before it began, all in
// one transaction; the row of each says what it was before. An instant that ran keeps its row and its run, so
// that it does not matter how often it is asked for, or what the scheduler decides meanwhile.
//
// Neither pauses nor overlaps are looked at: a pause holds the runs back while it lasts, and they wait behind
// all others (Run.Yields). The due instants carry no decision; the rows are returned in their order.
func (l *Ledger) Backfill(ctx context.Context, now time.Time, due []Due) ([]Occurrence, error) {
	return inTx(ctx, l, func(tx *sqlite.Tx) ([]Occurrence, error) {
		out := make([]Occurrence, len(due))
		for i, d := range due {
			var err error
			if out[i], err = l.backfillOne(tx, now, d); err != nil {
				return nil, err
			}
		}
		return out, nil
	})
}

// backfillOne inserts the row first, as recordOccurrence does, so that of two writers the second finds the
// decision of the first.
func (l *Ledger) backfillOne(tx *sqlite.Tx, now time.Time, d Due) (Occurrence, error) {
	var mine int64
	err := tx.QueryRow(`insert into occurrences (job, nominal, actual, decision, reason, recorded_at, source, through, instants)
		values ($1, $2, $3, $4, '', $5, $6, 0, 1) on conflict (job, nominal) do nothing returning nominal`,
		d.Job, ms(d.Nominal), ms(d.Actual), domain.DecisionRun, ms(now), d.Source).Scan(&mine)

	reason := "backfilled"
	switch {
	case errors.Is(err, sql.ErrNoRows):
		old, err := l.recordedOccurrence(tx, d)
		if err != nil || old.Decision == domain.DecisionRun {
			return old, err
		}
		if err := detachFirst(tx, now, old); err != nil {
			return old, err
		}

		reason += ", was " + string(old.Decision)
		if old.Reason != "" {
			reason += ": " + old.Reason
		}
	case err != nil:
		return Occurrence{}, err
	}

	nominal := d.Nominal.UTC()
	detail, err := json.Marshal(Detail{Source: d.Source, Nominal: &nominal})
	if err != nil {
		return Occurrence{}, err
	}

	// A run that was skipped has the key of the instant; the next one is told apart by it.
	key := instantKey(d)
	request := Request{Job: d.Job, Agent: d.Agent, Trigger: domain.TriggerBackfill, ScheduledAt: d.Nominal}
	a, err := insertRun(tx, now, request, key, string(detail))
	for a.Outcome == domain.OutcomeSkipped {
		a, err = insertRun(tx, now, request, fmt.Sprintf("%s/%d", key, a.Run), string(detail))
	}
	if err != nil {
		return Occurrence{}, err
	}

	_, err = tx.Exec(`update occurrences set decision = $1, reason = $2, run = $3, source = $4, actual = $5 where job = $6 and nominal = $7`,
		domain.DecisionRun, reason, a.Run, d.Source, ms(d.Actual), d.Job, ms(d.Nominal))
	return Occurrence{Job: d.Job, Source: d.Source, Nominal: d.Nominal, Actual: d.Actual, Decision: domain.DecisionRun, Reason: reason, Run: a.Run, Outcome: a.Outcome, Instants: 1}, err
}

// instantKey makes an instant one run, whoever asks for it.
func instantKey(d Due) string { return fmt.Sprintf("time/%s/%d", d.Job, ms(d.Nominal)) }
