package ledger

import (
	"context"
	"fmt"
	"strings"
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
	o := Occurrence{Job: d.Job, Source: d.Source, Nominal: d.Nominal, Actual: d.Actual, Decision: domain.DecisionRun, Instants: 1}
	isNew, err := insertOccurrence(tx, now, o)
	if err != nil {
		return o, err
	}

	o.Reason = "backfilled"
	if !isNew {
		old, err := l.recordedOccurrence(tx, d)
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

	// A run that was skipped has the key of the instant; the next one is told apart by it.
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
