package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"rouse/agentdb/sqlite"
)

// maxQueueAll bounds what overlap: queue_all lets wait.
const maxQueueAll = 100

// SyncJobs makes the ledger's jobs those of the configuration. A new job, and one whose
// schedule changed, starts from now; an unchanged one keeps its anchor and watermark; one
// that is gone keeps its history.
func (l *Ledger) SyncJobs(ctx context.Context, now time.Time, specs []JobSpec) (map[string]JobState, error) {
	out := map[string]JobState{}
	err := l.do(ctx, func(tx *sqlite.Tx) error {
		clear(out)
		if _, err := tx.Exec(`update jobs set removed = 1`); err != nil {
			return err
		}
		for _, s := range specs {
			if _, err := tx.Exec(`insert into jobs (name, agent, schedule_hash, anchor, watermark) values ($1, $2, $3, $4, $4)
				on conflict (name) do update set agent = excluded.agent, removed = 0,
				anchor = case when jobs.schedule_hash = excluded.schedule_hash then jobs.anchor else excluded.anchor end,
				watermark = case when jobs.schedule_hash = excluded.schedule_hash then jobs.watermark else excluded.watermark end,
				schedule_hash = excluded.schedule_hash`, s.Name, s.Agent, s.ScheduleHash, ms(now)); err != nil {
				return err
			}
			st := JobState{Name: s.Name, ScheduleHash: s.ScheduleHash}
			var anchor, watermark int64
			if err := tx.QueryRow(`select anchor, watermark from jobs where name = $1`, s.Name).Scan(&anchor, &watermark); err != nil {
				return err
			}
			st.Anchor, st.Watermark = instant(anchor), instant(watermark)
			out[s.Name] = st
		}
		return nil
	})
	return out, err
}

// RecordDue gives each instant its one row, queues the runs, and advances the watermarks
// of the jobs, all in one transaction. An instant that has a row keeps it, and the row is
// returned; so it does not matter how often, or from where, it is reported.
func (l *Ledger) RecordDue(ctx context.Context, now time.Time, due []Due, watermarks map[string]time.Time) ([]Occurrence, error) {
	out := make([]Occurrence, len(due))
	err := l.do(ctx, func(tx *sqlite.Tx) error {
		for i, d := range due {
			var err error
			if out[i], err = l.recordOne(tx, now, d); err != nil {
				return err
			}
		}
		for job, at := range watermarks {
			if _, err := tx.Exec(`update jobs set watermark = $1 where name = $2 and watermark < $1`, ms(at), job); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// recordOne inserts the instant's row first, so that of two schedulers the second waits for
// the first and finds its decision.
func (l *Ledger) recordOne(tx *sqlite.Tx, now time.Time, d Due) (Occurrence, error) {
	o := Occurrence{Job: d.Job, Nominal: d.Nominal, Actual: d.Actual, Decision: d.Decision, Reason: d.Reason}
	var mine int64
	err := tx.QueryRow(`insert into occurrences (job, nominal, actual, decision, reason, recorded_at) values ($1, $2, $3, $4, $5, $6)
		on conflict (job, nominal) do nothing returning nominal`, d.Job, ms(d.Nominal), ms(d.Actual), d.Decision, d.Reason, ms(now)).Scan(&mine)
	if errors.Is(err, sql.ErrNoRows) {
		var actual int64
		err := tx.QueryRow(`select actual, decision, reason, run from occurrences where job = $1 and nominal = $2`, d.Job, ms(d.Nominal)).
			Scan(&actual, &o.Decision, &o.Reason, &o.Run)
		o.Actual = instant(actual)
		return o, err
	}
	if err != nil {
		return o, err
	}
	if d.Decision == DecisionRun {
		if o.Decision, o.Reason, err = l.overlapIn(tx, now, d); err != nil {
			return o, err
		}
	}
	if o.Decision == DecisionRun {
		if o.Run, err = acceptDue(tx, now, d); err != nil {
			return o, err
		}
	} else if err := addEvent(tx, Event{Job: d.Job, At: now, Kind: "occurrence." + o.Decision},
		map[string]any{"nominal": d.Nominal.UTC(), "reason": o.Reason}); err != nil {
		return o, err
	}
	if d.Decision != DecisionRun {
		return o, nil
	}
	_, err = tx.Exec(`update occurrences set decision = $1, reason = $2, run = $3 where job = $4 and nominal = $5`,
		o.Decision, o.Reason, o.Run, d.Job, ms(d.Nominal))
	return o, err
}

func acceptDue(tx *sqlite.Tx, now time.Time, d Due) (int64, error) {
	nominal := d.Nominal.UTC()
	detail, err := json.Marshal(Detail{Source: d.Source, Nominal: &nominal})
	if err != nil {
		return 0, err
	}
	a, err := accept(tx, now, Request{Job: d.Job, Agent: d.Agent, Trigger: TriggerSchedule, ScheduledAt: d.Nominal, NotBefore: d.Actual},
		fmt.Sprintf("time/%s/%d", d.Job, ms(d.Nominal)), string(detail))
	return a.Run, err
}

// overlapIn decides a due instant against the job's other runs, as the ledger has them.
func (l *Ledger) overlapIn(tx *sqlite.Tx, now time.Time, d Due) (decision, reason string, err error) {
	rows, err := tx.Query(`select `+runColumns+` from runs where job = $1 and state in ('queued', 'running') order by id`+l.lock, d.Job)
	others, err := collect(rows, err, scanRuns)
	if err != nil {
		return "", "", err
	}
	decision, reason, cancel := decideOverlap(d.Overlap, others)
	if !cancel {
		return decision, orElse(reason, d.Reason), nil
	}
	for _, r := range others {
		if err := cancelIn(tx, r, "overlap: a newer occurrence took its place", now); err != nil {
			return "", "", err
		}
	}
	return decision, orElse(reason, d.Reason), nil
}

func orElse(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// decideOverlap is pure: others are the queued and running runs of the job.
func decideOverlap(policy string, others []Run) (decision, reason string, cancelOthers bool) {
	var queued []Run
	for _, r := range others {
		if r.State == StateQueued {
			queued = append(queued, r)
		}
	}
	switch policy {
	case "allow":
	case "cancel_previous":
		return DecisionRun, "", len(others) > 0
	case "queue_one":
		if len(queued) > 0 {
			return DecisionSkipped, fmt.Sprintf("overlap: run %d is already queued", queued[0].ID), false
		}
	case "queue_all":
		if len(queued) >= maxQueueAll {
			return DecisionSkipped, fmt.Sprintf("overlap: %d runs are already queued", len(queued)), false
		}
	default:
		if len(others) > 0 {
			return DecisionSkipped, fmt.Sprintf("overlap: run %d is still %s", others[0].ID, others[0].State), false
		}
	}
	return DecisionRun, "", false
}

// Occurrences lists instants of a job (or of all, "") between two times, newest first.
func (l *Ledger) Occurrences(ctx context.Context, job string, from, to time.Time, limit int) ([]Occurrence, error) {
	query := strings.Builder{}
	query.WriteString(`select o.job, o.nominal, o.actual, o.decision, o.reason, o.run, coalesce(r.outcome, '') from occurrences o left join runs r on r.id = o.run
		where o.nominal >= $1 and o.nominal <= $2`)
	args := []any{ms(from), ms(to), limit}
	if job != "" {
		query.WriteString(` and o.job = $4`)
		args = append(args, job)
	}
	query.WriteString(` order by o.nominal desc, o.job limit $3`)
	rows, err := l.read.QueryContext(ctx, query.String(), args...)
	return collect(rows, err, func(rows *sql.Rows) (Occurrence, error) {
		var o Occurrence
		var nominal, actual int64
		err := rows.Scan(&o.Job, &nominal, &actual, &o.Decision, &o.Reason, &o.Run, &o.Outcome)
		o.Nominal, o.Actual = instant(nominal), instant(actual)
		return o, err
	})
}
