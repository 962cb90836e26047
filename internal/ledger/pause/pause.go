// Package pause stores pauses of jobs, of agents, of models and of everything. It also pauses a job
// whose runs keep failing, and a job that keeps claiming the same path.
package pause

import (
	"context"
	"fmt"
	"strings"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
	"rouse/internal/text"
)

// Scopes of a pause.
const (
	All   = "all"
	Agent = "agent"
	Job   = "job"
)

// Pause is a period in which no run of a job, of an agent, or of any agent starts. Ended pauses are
// kept, because they explain why a scheduled run did not happen.
type Pause struct {
	ID      int64     `json:"id"`
	Scope   string    `json:"scope"`
	Name    string    `json:"name"` // empty for a pause of everything
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until"`    // zero if the pause lasts until it is ended
	EndedAt time.Time `json:"ended_at"` // when the pause was ended early
	Reason  string    `json:"reason"`
	By      string    `json:"by"`
}

// End returns the time the pause ends, or the zero time if it is not known.
func (p Pause) End() time.Time {
	if !p.EndedAt.IsZero() && (p.Until.IsZero() || p.EndedAt.Before(p.Until)) {
		return p.EndedAt
	}
	return p.Until
}

// Over reports whether the pause has ended at a time.
func (p Pause) Over(now time.Time) bool { return !p.End().IsZero() && !now.Before(p.End()) }

// Covers reports whether the pause applies to a job of an agent at a time. If job is empty, pauses
// of jobs do not apply.
func (p Pause) Covers(job, agent string, at time.Time) bool {
	switch p.Scope {
	case Job:
		if job == "" || p.Name != job {
			return false
		}
	case Agent:
		if p.Name != agent {
			return false
		}
	}
	return !at.Before(p.Since) && !p.Over(at)
}

// String returns the pause as a reason, for example "paused: agent bookkeeper until …: holidays".
func (p Pause) String() string {
	text := "paused: everything"
	switch p.Scope {
	case Job:
		text = "paused"
	case Agent:
		text = "paused: agent " + p.Name
	}

	if !p.Until.IsZero() {
		text += " until " + p.Until.UTC().Format(time.RFC3339)
	}

	if p.Reason != "" {
		text += ": " + p.Reason
	}

	return text
}

// Paused returns the pause that applies to a job of an agent at a time, and whether one applies. If
// several apply, it returns the one that ends last.
func Paused(pauses []Pause, job, agent string, at time.Time) (Pause, bool) {
	var found Pause
	ok := false
	for _, p := range pauses {
		if p.Covers(job, agent, at) && (!ok || p.End().IsZero() || (!found.End().IsZero() && p.End().After(found.End()))) {
			found, ok = p, true
		}
	}

	return found, ok
}

// Pauses stores pauses of jobs, agents and models.
type Pauses struct{ DB *store.DB }

// Set starts a pause now. It replaces a current pause of the same scope and name.
func (l *Pauses) Set(ctx context.Context, p Pause) (Pause, error) {
	if err := checkPauseTarget(p.Scope, p.Name); err != nil {
		return p, err
	}

	return store.InTx(ctx, l.DB, func(tx *store.Tx) (Pause, error) {
		lockPauses(tx, l.DB)
		return setPause(tx, l.DB.Now(), p)
	})
}

// checkPauseTarget returns an error if scope and name do not fit together.
func checkPauseTarget(scope, name string) error {
	switch {
	case scope == All && name != "":
		return fmt.Errorf("a pause of everything was asked for, and of %q", name)
	case scope == All:
	case scope != Agent && scope != Job:
		return fmt.Errorf("a pause is of a job, an agent, or all, not of a %q", scope)
	case name == "":
		return fmt.Errorf("the pause does not say of which %s", scope)
	}
	return nil
}

// lockPauses makes processes write pauses one after another. If two processes pause the same
// target, the second pause replaces the first.
func lockPauses(tx *store.Tx, db *store.DB) {
	if db.Postgres != nil { // SQLite has one writer anyway
		tx.Run(`lock table pauses in share row exclusive mode`)
	}
}

func setPause(tx *store.Tx, now time.Time, p Pause) (Pause, error) {
	// A target has one current pause. The old one ends now and stays on record.
	if _, err := endPauses(tx, now, p.Scope, p.Name); err != nil {
		return p, err
	}

	tx.Replanned = true
	p.Since, p.Until, p.EndedAt, p.Reason = store.Instant(store.Millis(now)), store.Instant(store.Millis(p.Until)), time.Time{}, tx.Redact(p.Reason)
	var err error
	if p.ID, err = store.Value[int64](tx, `insert into pauses (scope, name, since, until, reason, paused_by) values ($1, $2, $3, $4, $5, $6) returning id`,
		p.Scope, p.Name, store.Millis(p.Since), store.Millis(p.Until), p.Reason, p.By); err != nil {
		return p, err
	}

	data := map[string]any{"scope": p.Scope, "name": p.Name, "reason": p.Reason, "by": p.By}
	if !p.Until.IsZero() {
		data["until"] = p.Until.UTC()
	}

	return p, record.AddEvent(tx, record.Event{Job: pausedJob(p.Scope, p.Name), At: now, Kind: "paused"}, data)
}

func pausedJob(scope, name string) string {
	if scope == Job {
		return name
	}
	return ""
}

// End ends a current pause, and reports whether there was one.
func (l *Pauses) End(ctx context.Context, scope, name string) (bool, error) {
	return store.InTx(ctx, l.DB, func(tx *store.Tx) (bool, error) {
		lockPauses(tx, l.DB)
		now := l.DB.Now()
		if ended, err := endPauses(tx, now, scope, name); err != nil || !ended {
			return false, err
		}
		return true, record.AddEvent(tx, record.Event{Job: pausedJob(scope, name), At: now, Kind: "resumed"}, map[string]any{"scope": scope, "name": name})
	})
}

func endPauses(tx *store.Tx, now time.Time, scope, name string) (bool, error) {
	ended, err := store.Changed(tx, `update pauses set ended_at = $1 where scope = $2 and name = $3 and ended_at = 0 and (until = 0 or until > $1)`, store.Millis(now), scope, name)
	tx.Replanned = tx.Replanned || ended
	return ended, err
}

const (
	pauseColumns = `id, scope, name, since, until, ended_at, reason, paused_by`
	pausesSince  = `select ` + pauseColumns + ` from pauses where (until = 0 or until > $1) and (ended_at = 0 or ended_at > $1) order by id`
)

func pauseFields(p *Pause) []any {
	return []any{&p.ID, &p.Scope, &p.Name, store.Time(&p.Since), store.Time(&p.Until), store.Time(&p.EndedAt), &p.Reason, &p.By}
}

// List returns the pauses that have not ended at a time, oldest first.
func (l *Pauses) List(ctx context.Context, from time.Time) ([]Pause, error) {
	return At(store.Reads(ctx, l.DB), from)
}

// At returns the pauses that have not ended at a time, oldest first.
func At(from store.Querier, at time.Time) ([]Pause, error) {
	return store.List(from, pauseFields, pausesSince, store.Millis(at))
}

// Rule pauses a job whose runs keep failing.
type Rule struct {
	After   int             // number of consecutive failed runs
	Notices []record.Notice // sent to the job's owner when the job is paused
}

// Failing applies the rule after a failed run. Runs that ended before the job was last resumed do
// not count. Cancelled and skipped runs do not count either. A run refused by the daily budget does
// not count, because the job did not cause it.
//
// Runs count in the order in which they ended, so that a retried run counts by its last end.
func Failing(tx *store.Tx, db *store.DB, r record.Run, rule Rule, why string, now time.Time) error {
	if rule.After <= 0 || r.Job == "" {
		return nil
	}
	lockPauses(tx, db)
	pauses, err := store.List(tx, pauseFields, `select `+pauseColumns+` from pauses where scope = 'job' and name = $1`, r.Job)
	if err != nil {
		return err
	}

	var resumed time.Time
	for _, p := range pauses {
		// The job is already paused. Leave that pause as it is.
		if !p.Over(now) {
			return nil
		}
		if p.End().After(resumed) {
			resumed = p.End()
		}
	}

	outcomes, err := store.Values[domain.Outcome](tx, lastOutcomes, r.Job, store.Millis(resumed), rule.After)
	// Too few runs have ended since the job was last resumed.
	if err != nil || len(outcomes) < rule.After {
		return err
	}

	for _, o := range outcomes {
		if !o.Failed() {
			return nil
		}
	}

	record.AddNotices(tx, now, rule.Notices...)
	_, err = setPause(tx, now, Pause{Scope: Job, Name: r.Job, By: record.BySystem,
		Reason: fmt.Sprintf("%d runs in a row failed (pause_after_failures), the last was run %d: %s", rule.After, r.ID, text.Truncate(why, record.MaxEventText))})
	return err
}

const lastOutcomes = `select outcome from runs where job = $1 and state = 'finished' and outcome not in ('cancelled', 'skipped')
	and not (outcome = 'budget_exceeded' and exit = 'ended_by_surface') and finished_at > $2
	order by finished_at desc, id desc limit $3`

// PathPlaceholder stands for the path in the title of a Breaker's notices.
const PathPlaceholder = "\x00path"

// Breaker pauses a job that keeps claiming the same path. Such a job probably writes the file that
// triggers it.
type Breaker struct {
	MaxClaims int // number of claims of one path at which the job is paused
	Within    time.Duration
	Notices   []record.Notice // sent to the owner of the job when it is paused
}

// Trip pauses a job if a run's claim of a path reaches the limit. It reports whether it paused the
// job.
func (b Breaker) Trip(tx *store.Tx, db *store.DB, job, path string, run int64, now time.Time) (broken bool, err error) {
	n, err := store.Value[int](tx, `select count(*) from claims c join runs r on r.id = c.run where c.job = $1 and c.path = $2 and c.own = 0 and r.queued_at > $3`,
		job, path, store.Millis(now.Add(-b.Within)))
	if err != nil || n < b.MaxClaims {
		return false, err
	}

	lockPauses(tx, db)
	pauses, err := At(tx, now)
	// A current pause already stops the job.
	if _, ok := Paused(pauses, job, "", now); ok || err != nil {
		return false, err
	}

	if _, err := setPause(tx, now, Pause{Scope: Job, Name: job, By: record.BySystem,
		Reason: fmt.Sprintf("%s was taken %d times within %s, the last time by run %d: something writes it again and again, perhaps the job itself", path, n, b.Within, run)}); err != nil {
		return false, err
	}

	for _, notice := range b.Notices {
		notice.Title = strings.ReplaceAll(notice.Title, PathPlaceholder, text.OneLine(path))
		record.AddNotices(tx, now, notice)
	}

	return true, nil
}

// ModelPause is a period in which a model gets no requests, because its provider's quota is used
// up. It is kept until the model answers again, so that the next pause can be longer.
type ModelPause struct {
	Model  string    // configured name
	Since  time.Time // when the first request was refused
	Until  time.Time
	Tries  int // number of consecutive pauses
	Reason string
}

// PauseModel stores the pause of a model and adds the notices to the outbox. The caller passes
// notices only for the first of several consecutive pauses.
func (l *Pauses) PauseModel(ctx context.Context, p ModelPause, notices ...record.Notice) error {
	now := l.DB.Now()
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		tx.Run(`insert into model_pauses (model, since, until, tries, reason) values ($1, $2, $3, $4, $5)
			on conflict (model) do update set since = excluded.since, until = excluded.until, tries = excluded.tries, reason = excluded.reason`,
			p.Model, store.Millis(p.Since), store.Millis(p.Until), p.Tries, tx.Redact(p.Reason))

		record.AddNotices(tx, now, notices...)
		return record.AddEvent(tx, record.Event{At: now, Kind: "model.paused"}, map[string]any{"model": p.Model, "until": p.Until.UTC(), "reason": p.Reason})
	})
}

// ResumeModel records that a model answers again. It makes all runs that wait for a model due now.
// The ledger does not know which model a run waits for.
func (l *Pauses) ResumeModel(ctx context.Context, model string) error {
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		if paused, err := store.Changed(tx, `delete from model_pauses where model = $1`, model); err != nil || !paused {
			return err
		}

		tx.Run(`update runs set not_before = 0 where not_before <> 0 and state = 'waiting' and waiting_for = 'retry' and postponements > 0`)
		return record.AddEvent(tx, record.Event{At: l.DB.Now(), Kind: "model.resumed"}, map[string]any{"model": model})
	})
}

// Models returns the models that have not answered since they were paused, ordered by name.
func (l *Pauses) Models(ctx context.Context) ([]ModelPause, error) {
	return store.List(store.Reads(ctx, l.DB), func(p *ModelPause) []any {
		return []any{&p.Model, store.Time(&p.Since), store.Time(&p.Until), &p.Tries, &p.Reason}
	}, `select model, since, until, tries, reason from model_pauses order by model`)
}
