package ledger

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"rouse/agentdb/sqlite"
	"rouse/internal/domain"
)

// Overdue describes a job that has not succeeded within expect_success_within.
type Overdue struct {
	Job, Agent string
	Missed     int    // windows without a success
	Why        string // known cause
	LastRun    int64  // 0 if the job has not run
	Notices    []Notice
}

// RecordOverdue opens the incident of an overdue job or updates its missed windows, and adds the notices to the
// outbox. It does nothing if these windows are already recorded, and sends no notices of an acknowledged
// incident.
func (l *Ledger) RecordOverdue(ctx context.Context, o Overdue, now time.Time) error {
	return l.do(ctx, func(tx *sqlite.Tx) error {
		i, err := one(tx, incidentFields, `select `+incidentColumns+` from incidents where job = $1 and kind = $2 and closed_at = 0`+l.forUpdate, o.Job, domain.KindOverdue)
		opened := errors.Is(err, sql.ErrNoRows)
		if err != nil && !opened || err == nil && i.Failures >= o.Missed {
			return err
		}
		if opened {
			if i, err = one(tx, incidentFields, `insert into incidents (job, agent, kind, first_run, last_run, opened_at, last_at) values ($1, $2, $3, $4, $4, $5, $5) returning `+incidentColumns,
				o.Job, o.Agent, domain.KindOverdue, o.LastRun, ms(now)); err != nil {
				return err
			}
			if err := addEvent(tx, Event{Job: o.Job, At: now, Kind: "incident.opened"}, map[string]any{"incident": i.ID, "error_kind": i.Kind}); err != nil {
				return err
			}
		}

		told := 0
		for _, n := range o.Notices {
			if !i.AckedAt.IsZero() {
				break
			}
			n.Incident = i.ID
			addNotices(tx, now, n)
			told++
		}
		tx.Run(`update incidents set failures = $1, error = $2, last_run = $3, last_at = $4, told = told + $5 where id = $6`, o.Missed, tx.Redact(o.Why), o.LastRun, ms(now), told, i.ID)
		return nil
	})
}

// CloseOverdue closes the incident of a job that is not overdue any more.
func (l *Ledger) CloseOverdue(ctx context.Context, job string, now time.Time) error {
	return l.exec(ctx, `update incidents set closed_at = $1 where job = $2 and kind = $3 and closed_at = 0`, ms(now), job, domain.KindOverdue)
}
