// Package incident groups the failures of a job by kind of error, from the first failure to the
// next success. It also completes the notices that are sent when a run ends.
package incident

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
	"rouse/internal/text"
)

// Incident is a series of failures of a job with the same kind of error. It ends with the next
// success of the job. If the runs belong to no job, the incident belongs to their agent.
type Incident struct {
	ID                int64
	Job, Agent, Kind  string
	Failures          int
	Error             string // error of the last failure
	FirstRun, LastRun int64
	OpenedAt, LastAt  time.Time
	Told              int       // number of notices sent
	AckedAt           time.Time // zero if not acknowledged
	Note              string    // note of the person that acknowledged it
	ClosedAt          time.Time // zero if open
	ClosedBy          int64     // ID of the run that succeeded
}

// Of returns the name of the job the incident belongs to, or of the agent if there is no job.
func (i Incident) Of() string {
	if i.Job == "" {
		return i.Agent
	}
	return i.Job
}

// Change is the effect of a run's end on incidents.
type Change struct {
	Failed    *Incident  // incident of the failure; nil if the run did not fail
	Recovered []Incident // incidents closed by the success
}

// about returns the ID of the incident that a notice of the change refers to. It returns 0 unless
// there is exactly one.
func (c Change) about() int64 {
	switch {
	case c.Failed != nil:
		return c.Failed.ID
	case len(c.Recovered) == 1:
		return c.Recovered[0].ID
	}
	return 0
}

// Ending holds the properties of a run's end that matter to incidents.
type Ending struct {
	Tell    *EndNotices // if nil, the end changes no incidents
	Kind    string      // kind of error reported by the executor; may be empty
	Outcome domain.Outcome
	Exit    domain.Exit
	Error   string
}

// errorKind returns the kind of error by which failures are grouped. It is the kind reported by the
// executor, or else derived from outcome and exit.
func (e Ending) errorKind() string {
	switch {
	case e.Kind != "":
		return e.Kind
	case e.Outcome == domain.OutcomeBudget && e.Exit == domain.ExitEnded:
		return "daily budget"
	case e.Outcome == domain.OutcomeError && e.Exit != "" && e.Exit != domain.ExitEnded:
		return string(e.Exit)
	}
	return string(e.Outcome)
}

// RecordEnd updates the incidents of a run's job when the run ends, and adds the notices to the
// outbox.
func RecordEnd(tx *store.Tx, r record.Run, e Ending, now time.Time) error {
	if e.Tell == nil {
		return nil // the caller waits for the run and sees how it ends
	}

	change, err := changeIncidents(tx, r, e, now)
	if err != nil {
		return err
	}

	notices := e.Tell.For(change)
	for _, n := range notices {
		n.Incident = change.about()
		record.AddNotices(tx, now, n)
	}
	if change.about() == 0 || len(notices) == 0 {
		return nil
	}

	tx.Run(`update incidents set told = told + $1 where id = $2`, len(notices), change.about())
	return nil
}

// changeIncidents counts a failure in the incident of its kind, or opens one. A success closes all
// incidents of the job. Cancelled, skipped and partial runs change no incident, because they do not
// show whether the error persists.
func changeIncidents(tx *store.Tx, r record.Run, e Ending, now time.Time) (Change, error) {
	switch {
	case e.Outcome.OpensIncident():
		i, err := countFailure(tx, r, e, now)
		return Change{Failed: &i}, err
	case e.Outcome == domain.OutcomeSuccess || e.Outcome == domain.OutcomeNothing:
		closed, err := closeIncidents(tx, r, now)
		return Change{Recovered: closed}, err
	}
	return Change{}, nil
}

func countFailure(tx *store.Tx, r record.Run, e Ending, now time.Time) (Incident, error) {
	kind := text.Truncate(text.OneLine(e.errorKind()), maxIncidentKind)
	count := func() (Incident, error) {
		return store.One(tx, incidentFields, countFailed, r.Agent, text.Truncate(tx.Redact(e.Error), record.MaxEventText), r.ID, store.Millis(now), r.Job, kind)
	}

	// Update before inserting: an insert that conflicts would use up an ID.
	i, err := count()
	if !errors.Is(err, sql.ErrNoRows) {
		return i, err
	}

	// If two runs of a job fail for the first time at once, the second waits here. It is counted in
	// the incident of the first run.
	tx.Run(`insert into incidents (job, agent, kind, first_run, last_run, opened_at, last_at) values ($1, $2, $3, $4, $4, $5, $5) on conflict do nothing`,
		r.Job, r.Agent, kind, r.ID, store.Millis(now))
	if i, err = count(); err != nil || i.Failures > 1 {
		return i, err
	}
	return i, record.AddEvent(tx, record.Event{Run: r.ID, Job: r.Job, At: now, Kind: "incident.opened"}, map[string]any{"incident": i.ID, "error_kind": kind})
}

// maxIncidentKind is the maximum length of a kind of error, in characters.
const maxIncidentKind = 100

func closeIncidents(tx *store.Tx, r record.Run, now time.Time) ([]Incident, error) {
	closed, err := store.List(tx, incidentFields, closeOpen, store.Millis(now), r.ID, r.Job, r.Agent)
	for _, i := range closed {
		err = errors.Join(err, record.AddEvent(tx, record.Event{Run: r.ID, Job: r.Job, At: now, Kind: "incident.closed"}, map[string]any{"incident": i.ID, "error_kind": i.Kind, "failures": i.Failures}))
	}
	return closed, err
}

const (
	countFailed = `update incidents set failures = failures + 1, agent = $1, error = $2, last_run = $3, last_at = $4
		where job = $5 and kind = $6 and closed_at = 0 and ($5 <> '' or agent = $1) returning ` + incidentColumns
	closeOpen       = `update incidents set closed_at = $1, closed_by = $2 where job = $3 and closed_at = 0 and ($3 <> '' or agent = $4) returning ` + incidentColumns
	incidentColumns = `id, job, agent, kind, failures, error, first_run, last_run, opened_at, last_at, told, acked_at, note, closed_at, closed_by`
	openIncidents   = `select ` + incidentColumns + ` from incidents where closed_at = 0 order by id limit $1`
	lastIncidents   = `select ` + incidentColumns + ` from incidents order by id desc limit $1`
	incidentsOfJob  = `select ` + incidentColumns + ` from incidents where job = $2 order by last_at desc, id desc limit $1`
	openOfJob       = `select ` + incidentColumns + ` from incidents where closed_at = 0 and job = $2 order by id limit $1`
)

func incidentFields(i *Incident) []any {
	return []any{
		&i.ID, &i.Job, &i.Agent, &i.Kind, &i.Failures, &i.Error, &i.FirstRun, &i.LastRun, store.Time(&i.OpenedAt), store.Time(&i.LastAt),
		&i.Told, store.Time(&i.AckedAt), &i.Note, store.Time(&i.ClosedAt), &i.ClosedBy,
	}
}

// Incidents stores the failures that the owners of jobs are notified of.
type Incidents struct{ DB *store.DB }

// Filter selects incidents.
type Filter struct {
	Job string // empty means all jobs
	// Closed lists all incidents, newest first. If false, only open incidents are listed, oldest
	// first.
	Closed bool
	Limit  int // 0 means 100
}

// List returns the incidents that match a filter.
func (l *Incidents) List(ctx context.Context, f Filter) ([]Incident, error) {
	if f.Limit == 0 {
		f.Limit = 100
	}

	query, args := openIncidents, []any{f.Limit}
	switch {
	case f.Job != "" && f.Closed:
		query, args = incidentsOfJob, append(args, f.Job)
	case f.Job != "":
		query, args = openOfJob, append(args, f.Job)
	case f.Closed:
		query = lastIncidents
	}

	return store.List(store.Reads(ctx, l.DB), incidentFields, query, args...)
}

// Acknowledge records that the owner knows of an incident, so that no further failures of it cause
// notices. Acknowledging it again has no effect. It returns ErrNotFound if the incident does not
// exist, and *OverError if it is closed.
func (l *Incidents) Acknowledge(ctx context.Context, id int64, note string) (Incident, error) {
	now := l.DB.Now()
	return store.InTx(ctx, l.DB, func(tx *store.Tx) (Incident, error) {
		i, err := store.One(tx, incidentFields, `select `+incidentColumns+` from incidents where id = $1`+l.DB.ForUpdate, id)
		i, err = store.OrNotFound(i, err, "incident %d", id)
		switch {
		case err != nil || !i.AckedAt.IsZero() && i.ClosedAt.IsZero():
			return i, err
		case !i.ClosedAt.IsZero():
			return i, &OverError{i}
		}

		i.AckedAt, i.Note = store.Instant(store.Millis(now)), tx.Redact(note)
		tx.Run(`update incidents set acked_at = $1, note = $2 where id = $3`, store.Millis(now), i.Note, id)
		return i, record.AddEvent(tx, record.Event{Job: i.Job, At: now, Kind: "incident.acknowledged"}, map[string]any{"incident": id, "error_kind": i.Kind, "note": note})
	})
}

// OverError is returned if an incident is acknowledged after it was closed.
type OverError struct{ Incident Incident }

func (e *OverError) Error() string {
	return fmt.Sprintf("incident %d of %s is over: run %d succeeded at %s", e.Incident.ID, e.Incident.Of(), e.Incident.ClosedBy, e.Incident.ClosedAt.UTC().Format(time.RFC3339))
}

// Overdue describes a job that has not succeeded within expect_success_within.
type Overdue struct {
	Job, Agent string
	Missed     int    // number of windows without a success
	Why        string // known cause
	LastRun    int64  // 0 if the job has not run
	Notices    []record.Notice
}

// RecordOverdue opens the incident of an overdue job or updates its number of missed windows. It
// adds the notices to the outbox unless the incident is acknowledged. If these windows are already
// recorded, it does nothing.
func (l *Incidents) RecordOverdue(ctx context.Context, o Overdue, now time.Time) error {
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		i, err := store.One(tx, incidentFields, `select `+incidentColumns+` from incidents where job = $1 and kind = $2 and closed_at = 0`+l.DB.ForUpdate, o.Job, domain.KindOverdue)
		opened := errors.Is(err, sql.ErrNoRows)
		if err != nil && !opened || err == nil && i.Failures >= o.Missed {
			return err
		}
		if opened {
			if i, err = store.One(tx, incidentFields, `insert into incidents (job, agent, kind, first_run, last_run, opened_at, last_at) values ($1, $2, $3, $4, $4, $5, $5) returning `+incidentColumns,
				o.Job, o.Agent, domain.KindOverdue, o.LastRun, store.Millis(now)); err != nil {
				return err
			}
			if err := record.AddEvent(tx, record.Event{Job: o.Job, At: now, Kind: "incident.opened"}, map[string]any{"incident": i.ID, "error_kind": i.Kind}); err != nil {
				return err
			}
		}

		told := 0
		for _, n := range o.Notices {
			if !i.AckedAt.IsZero() {
				break
			}
			n.Incident = i.ID
			record.AddNotices(tx, now, n)
			told++
		}
		tx.Run(`update incidents set failures = $1, error = $2, last_run = $3, last_at = $4, told = told + $5 where id = $6`, o.Missed, tx.Redact(o.Why), o.LastRun, store.Millis(now), told, i.ID)
		return nil
	})
}

// CloseOverdue closes the incident of a job that is no longer overdue.
func (l *Incidents) CloseOverdue(ctx context.Context, job string, now time.Time) error {
	return store.Exec(ctx, l.DB, `update incidents set closed_at = $1 where job = $2 and kind = $3 and closed_at = 0`, store.Millis(now), job, domain.KindOverdue)
}

// EndNotices holds the notices to send when a run ends. The ledger completes them in the
// transaction that ends the run. The incident of a failure is not known before.
type EndNotices struct {
	Notices []EndNotice
	// Recovery is used if Notices is empty and the run closes an incident that caused notices. The
	// closed incidents are listed above the body.
	Recovery []record.Notice
	Zone     *time.Location
}

// EndNotice is a notice for one channel.
type EndNotice struct {
	record.Notice
	// Every selects which failures of an incident after the first cause a notice. 0 disables
	// these notices, 1 selects all failures, and n selects every n-th failure.
	Every int
}

// maxIncidentError is the maximum length of the error of an incident in a notice, in characters.
const maxIncidentError = 200

// For returns the notices of a run's end that has the given effect on incidents. A failure
// in an acknowledged incident has no notices.
func (e EndNotices) For(c Change) []record.Notice {
	if c.Failed != nil {
		return e.ofFailure(*c.Failed)
	}

	notices := make([]record.Notice, len(e.Notices))
	for i, n := range e.Notices {
		notices[i] = n.Notice
	}
	if len(c.Recovered) == 0 {
		return notices
	}

	var closed []string
	told := false
	for _, i := range c.Recovered {
		told = told || i.Told > 0
		closed = append(closed, fmt.Sprintf("incident %d is over: %s (%s), %s since %s", i.ID, i.Kind, text.Truncate(text.Collapse(text.OneLine(i.Error)), maxIncidentError), text.Plural(i.Failures, domain.IncidentUnit(i.Kind, "failed run")), e.time(i.OpenedAt)))
	}
	words := strings.Join(closed, "\n")

	if len(notices) > 0 {
		for i := range notices {
			notices[i].Body += "\n" + words
		}
		return notices
	}
	if !told {
		return nil
	}
	for _, n := range e.Recovery {
		n.Body = words + n.Body
		notices = append(notices, n)
	}
	return notices
}

func (e EndNotices) ofFailure(i Incident) (out []record.Notice) {
	if !i.AckedAt.IsZero() {
		return nil
	}

	for _, n := range e.Notices {
		if i.Failures > 1 && (n.Every == 0 || i.Failures%n.Every != 0) {
			continue
		}
		if i.Failures > 1 {
			n.Title += fmt.Sprintf(" (%d times)", i.Failures)
			n.Body += fmt.Sprintf("\n%s failed like this since %s", text.Plural(i.Failures, "run"), e.time(i.OpenedAt))
		}
		next := fmt.Sprintf("Next message at failure %d.", i.Failures+n.Every-i.Failures%max(n.Every, 1))
		switch n.Every {
		case 0:
			next = "No further message of such failures."
		case 1:
			next = "Next message at each further failure."
		}
		n.Body += fmt.Sprintf("\n%s To hear no more until it recovers: rouse ack %d", next, i.ID)
		out = append(out, n.Notice)
	}
	return out
}

func (e EndNotices) time(at time.Time) string {
	zone := e.Zone
	if zone == nil {
		zone = time.UTC
	}
	return at.In(zone).Format("2006-01-02 15:04 MST")
}
