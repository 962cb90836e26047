package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"rouse/agentdb/sqlite"
	"rouse/internal/domain"
)

// maxQueueAll bounds what overlap: queue_all lets wait.
const maxQueueAll = 100

// SyncJobs makes the ledger's jobs those of the configuration. A new job, one that was
// gone, and one whose schedule changed, starts from now; an unchanged one keeps its anchor
// and watermark; one that is gone keeps its history.
func (l *Ledger) SyncJobs(ctx context.Context, now time.Time, specs []JobSpec) (map[string]JobState, error) {
	out := map[string]JobState{}
	err := l.do(ctx, func(tx *sqlite.Tx) error {
		clear(out)
		const candidate = 2 // removed, unless the configuration still has it
		if _, err := tx.Exec(`update jobs set removed = $1 where removed = 0`, candidate); err != nil {
			return err
		}

		for _, s := range specs {
			st := JobState{Name: s.Name, ScheduleHash: s.ScheduleHash}
			var anchor, watermark int64
			if err := tx.QueryRow(`insert into jobs (name, agent, schedule_hash, anchor, watermark) values ($1, $2, $3, $4, $4)
				on conflict (name) do update set agent = excluded.agent, removed = 0,
				anchor = case when jobs.schedule_hash = excluded.schedule_hash and jobs.removed <> 1 then jobs.anchor else excluded.anchor end,
				watermark = case when jobs.schedule_hash = excluded.schedule_hash and jobs.removed <> 1 then jobs.watermark else excluded.watermark end,
				schedule_hash = excluded.schedule_hash returning anchor, watermark`, s.Name, s.Agent, s.ScheduleHash, ms(now)).Scan(&anchor, &watermark); err != nil {
				return err
			}

			st.Anchor, st.Watermark = instant(anchor), instant(watermark)
			out[s.Name] = st
		}

		_, err := tx.Exec(`update jobs set removed = 1 where removed = $1`, candidate)
		return err
	})

	return out, err
}

// Jobs lists how far the jobs of the configuration have been dealt with.
func (l *Ledger) Jobs(ctx context.Context) ([]JobState, error) {
	rows, err := l.read.QueryContext(ctx, `select name, schedule_hash, anchor, watermark from jobs where removed <> 1 order by name`)
	return collect(rows, err, func(rows *sql.Rows) (JobState, error) {
		var st JobState
		var anchor, watermark int64
		err := rows.Scan(&st.Name, &st.ScheduleHash, &anchor, &watermark)
		st.Anchor, st.Watermark = instant(anchor), instant(watermark)
		return st, err
	})
}

// Rewind brings the watermarks back to now: the clock ran ahead and was set right. What
// ran in the time that comes again has its row, and does not run twice. A pause that began
// in that time begins now and is as long as it was; one that was ended in it is over.
func (l *Ledger) Rewind(ctx context.Context, now time.Time) error {
	return l.replan(ctx, func(tx *sqlite.Tx) (bool, error) {
		if _, err := tx.Exec(`update jobs set watermark = $1 where watermark > $1`, ms(now)); err != nil {
			return false, err
		}

		moved, err := tx.Exec(`update pauses set since = case when since > $1 then $1 else since end,
			until = case when since > $1 and until <> 0 then until - since + $1 else until end,
			ended_at = case when ended_at > $1 then $1 else ended_at end where since > $1 or ended_at > $1`, ms(now))
		if err != nil {
			return false, err
		}

		n, err := moved.RowsAffected()
		return n > 0, err
	})
}

// RecordDue gives each instant its one row, queues the runs, and advances the watermarks
// of the jobs, all in one transaction. An instant that has a row keeps it, and the row is
// returned; so it does not matter how often, or from where, it is reported. Only one that
// was missed, and comes again because the clock was set back, may run after all.
func (l *Ledger) RecordDue(ctx context.Context, now time.Time, due []Due, watermarks map[string]time.Time) ([]Occurrence, error) {
	out := make([]Occurrence, len(due))
	earliest := now
	for _, d := range due {
		if d.Nominal.Before(earliest) {
			earliest = d.Nominal
		}
	}

	err := l.do(ctx, func(tx *sqlite.Tx) error {
		pauses, err := pausesIn(tx, earliest)
		if err != nil {
			return err
		}

		for i, d := range due {
			if out[i], err = l.recordOne(tx, now, d, pauses); err != nil {
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
func (l *Ledger) recordOne(tx *sqlite.Tx, now time.Time, d Due, pauses []Pause) (Occurrence, error) {
	o := Occurrence{Job: d.Job, Source: d.Source, Nominal: d.Nominal, Actual: d.Actual, Decision: d.Decision, Reason: d.Reason,
		Through: d.Through, Instants: d.Instants}
	if d.Through.IsZero() {
		o.Instants = 1
	}

	var mine int64
	err := tx.QueryRow(`insert into occurrences (job, nominal, actual, decision, reason, recorded_at, source, through, instants)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9) on conflict (job, nominal) do nothing returning nominal`,
		d.Job, ms(d.Nominal), ms(d.Actual), d.Decision, d.Reason, ms(now), d.Source, ms(d.Through), o.Instants).Scan(&mine)
	if errors.Is(err, sql.ErrNoRows) {
		old, err := l.recorded(tx, d)
		switch {
		case err != nil:
			return old, err
		case !d.Through.IsZero():
			return stretch(tx, now, old, d)
		case old.Decision != domain.DecisionMissed || d.Decision != domain.DecisionRun:
			return old, nil
		}

		if err := detach(tx, now, old); err != nil {
			return old, err
		}
	} else if err != nil {
		return o, err
	}

	if d.Decision == domain.DecisionRun {
		if o.Decision, o.Reason, err = l.decideIn(tx, now, d, pauses); err != nil {
			return o, err
		}
	}

	if o.Decision == domain.DecisionRun {
		if o.Run, err = acceptDue(tx, now, d); err != nil {
			return o, err
		}
	} else if err := addEvent(tx, Event{Job: d.Job, At: now, Kind: "occurrence." + string(o.Decision)}, told(o)); err != nil {
		return o, err
	}

	if d.Decision != domain.DecisionRun {
		return o, nil
	}

	_, err = tx.Exec(`update occurrences set decision = $1, reason = $2, run = $3, source = $4, actual = $5 where job = $6 and nominal = $7`,
		o.Decision, o.Reason, o.Run, d.Source, ms(d.Actual), d.Job, ms(d.Nominal))
	return o, err
}

// stretch records a stretch of missed instants whose first one has a row. One that stands
// for a stretch grows; beside any other the rest of the stretch gets its own.
func stretch(tx *sqlite.Tx, now time.Time, old Occurrence, d Due) (Occurrence, error) {
	if old.Through.IsZero() {
		if d.Instants == 1 {
			return old, nil
		}
		d.Nominal = d.Nominal.Add(time.Millisecond)
		d.Instants = max(d.Instants-1, 0)
	}

	if _, err := tx.Exec(`insert into occurrences (job, nominal, actual, decision, reason, recorded_at, source, through, instants)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9) on conflict (job, nominal) do update
		set through = excluded.through, instants = excluded.instants, reason = excluded.reason
		where occurrences.through <> 0 and occurrences.through < excluded.through`,
		d.Job, ms(d.Nominal), ms(d.Actual), d.Decision, d.Reason, ms(now), d.Source, ms(d.Through), d.Instants); err != nil {
		return old, err
	}

	return scanOccurrence(tx.QueryRow(oneOccurrence, d.Job, ms(d.Nominal)))
}

// detach takes the first instant of a stretch out of it: it gets a row for itself.
func detach(tx *sqlite.Tx, now time.Time, o Occurrence) error {
	if o.Through.IsZero() {
		return nil
	}
	if _, err := tx.Exec(`update occurrences set through = 0, instants = 1 where job = $1 and nominal = $2`, o.Job, ms(o.Nominal)); err != nil {
		return err
	}

	rest := Due{Job: o.Job, Source: o.Source, Nominal: o.Nominal, Actual: o.Actual, Decision: o.Decision, Reason: o.Reason, Through: o.Through, Instants: o.Instants}
	o.Through = time.Time{}
	_, err := stretch(tx, now, o, rest)
	return err
}

// told is what the event of an occurrence that does not run says.
func told(o Occurrence) map[string]any {
	data := map[string]any{"nominal": o.Nominal.UTC(), "reason": o.Reason}
	if !o.Through.IsZero() {
		data["through"], data["instants"] = o.Through.UTC(), o.Instants
	}
	return data
}

const oneOccurrence = occurrences + ` where o.job = $1 and o.nominal = $2`

// recorded is the row that an instant has. PostgreSQL keeps it for this transaction, so that
// of two schedulers that see a missed instant again the second finds what the first decided.
func (l *Ledger) recorded(tx *sqlite.Tx, d Due) (Occurrence, error) {
	query := oneOccurrence
	if l.lock != "" {
		query += l.lock + ` of o`
	}
	return scanOccurrence(tx.QueryRow(query, d.Job, ms(d.Nominal)))
}

func acceptDue(tx *sqlite.Tx, now time.Time, d Due) (int64, error) {
	nominal := d.Nominal.UTC()
	detail, err := json.Marshal(Detail{Source: d.Source, Nominal: &nominal})
	if err != nil {
		return 0, err
	}

	var notBefore time.Time // what has come stays so, also when the clock is set back
	if d.Actual.After(now) {
		notBefore = d.Actual
	}

	a, err := accept(tx, now, Request{Job: d.Job, Agent: d.Agent, Trigger: domain.TriggerSchedule, ScheduledAt: d.Nominal, NotBefore: notBefore},
		fmt.Sprintf("time/%s/%d", d.Job, ms(d.Nominal)), string(detail))
	return a.Run, err
}

// decideIn decides a due instant on the job's other runs, as the ledger has them.
func (l *Ledger) decideIn(tx *sqlite.Tx, now time.Time, d Due, pauses []Pause) (decision domain.Decision, reason string, err error) {
	var others []Run
	if states, most := Rivals(d.Overlap); most > 0 {
		rows, err := tx.Query(othersOf+l.lock, d.Job, string(states[0]), string(states[len(states)-1]), most)
		if others, err = collect(rows, err, scanRuns); err != nil {
			return "", "", err
		}
	}

	decision, reason, cancel := Decide(d, others, pauses)
	if !cancel {
		return decision, reason, nil
	}

	for _, r := range others {
		if err := l.cancelIn(tx, r, replacedReason, now); err != nil {
			return "", "", err
		}
	}

	return decision, reason, nil
}

// othersOf says twice that they are not over, so that SQLite finds them by their index.
const othersOf = `select ` + runColumns + ` from runs where job = $1 and state in ($2, $3) and state <> 'finished' order by id limit $4`

// Rivals says which runs of a job an overlap policy is decided on: those in these states, of
// which the oldest ones are enough. A job can have any number of runs queued, and each of
// its instants is decided in the one transaction that all writers share.
func Rivals(policy domain.Overlap) (states []domain.State, most int) {
	switch policy {
	case domain.OverlapAllow:
		return nil, 0
	case domain.OverlapQueueOne:
		return []domain.State{domain.StateQueued}, 1
	case domain.OverlapQueueAll:
		return []domain.State{domain.StateQueued}, maxQueueAll
	case domain.OverlapCancel:
		return []domain.State{domain.StateQueued, domain.StateRunning}, math.MaxInt32
	}
	return []domain.State{domain.StateQueued, domain.StateRunning}, 1
}

const replacedReason = "overlap: a newer occurrence took its place"

// Decide is pure: what becomes of an instant that is to run, given the rivals of its run,
// oldest first, and the pauses. cancelOthers says that the instant takes
// the place of those runs.
func Decide(d Due, others []Run, pauses []Pause) (decision domain.Decision, reason string, cancelOthers bool) {
	if p, ok := Paused(pauses, d.Job, d.Agent, d.Nominal); ok {
		return domain.DecisionSkipped, p.String(), false
	}

	decision, reason, cancelOthers = decideOverlap(d.Overlap, others)
	if reason == "" {
		reason = d.Reason
	}
	return decision, reason, cancelOthers
}

// decideOverlap is pure: others are the rivals of the policy, oldest first.
func decideOverlap(policy domain.Overlap, others []Run) (decision domain.Decision, reason string, cancelOthers bool) {
	var queued []Run
	for _, r := range others {
		if r.State == domain.StateQueued {
			queued = append(queued, r)
		}
	}

	switch policy {
	case domain.OverlapAllow:
	case domain.OverlapCancel:
		return domain.DecisionRun, "", len(others) > 0
	case domain.OverlapQueueOne:
		if len(queued) > 0 {
			return domain.DecisionSkipped, fmt.Sprintf("overlap: run %d is already queued", queued[0].ID), false
		}
	case domain.OverlapQueueAll:
		if len(queued) >= maxQueueAll {
			return domain.DecisionSkipped, fmt.Sprintf("overlap: %d runs are already queued", len(queued)), false
		}
	default:
		if len(others) > 0 {
			return domain.DecisionSkipped, fmt.Sprintf("overlap: run %d is still %s", others[0].ID, others[0].State), false
		}
	}

	return domain.DecisionRun, "", false
}

const occurrences = `select o.job, o.source, o.nominal, o.actual, o.decision, o.reason, o.run, o.through, o.instants, coalesce(r.outcome, '')
	from occurrences o left join runs r on r.id = o.run`

func scanOccurrence(row interface{ Scan(...any) error }) (Occurrence, error) {
	var o Occurrence
	var nominal, actual, through int64
	err := row.Scan(&o.Job, &o.Source, &nominal, &actual, &o.Decision, &o.Reason, &o.Run, &through, &o.Instants, &o.Outcome)
	o.Nominal, o.Actual, o.Through = instant(nominal), instant(actual), instant(through)
	return o, err
}

func scanOccurrences(rows *sql.Rows) (Occurrence, error) { return scanOccurrence(rows) }

// Occurrences lists instants of a job (or of all, "") between two times, newest first.
// What stands for a stretch is among them when any part of it is.
func (l *Ledger) Occurrences(ctx context.Context, job string, from, to time.Time, limit int) ([]Occurrence, error) {
	args := []any{ms(from), ms(to), limit}
	if job != "" {
		args = append(args, job)
	}
	rows, err := l.read.QueryContext(ctx, between(job), args...)
	return collect(rows, err, scanOccurrences)
}

// between adds nothing to columns where the index on stretches, which are few, is better
// than the one on instants.
func between(job string) string {
	within, reaching := ` where o.nominal >= $1 and o.nominal <= $2`, ` where o.through <> 0 and o.through >= $1 and o.nominal + 0 < $1`
	if job != "" {
		within, reaching = within+` and o.job = $4`, reaching+` and o.job || '' = $4`
	}
	return occurrences + within + ` union all ` + occurrences + reaching + ` order by 3 desc, 1 limit $3`
}
