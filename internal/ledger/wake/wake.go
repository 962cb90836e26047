// Package wake stores the next run that each agent has planned for itself. It also decides how to
// handle a wake that is due.
package wake

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// lastInstant is the latest time that RFC 3339 and JSON can represent.
var lastInstant = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

const (
	// staleAfter is how late a wake may fire before its on_miss setting applies.
	staleAfter = 5 * time.Minute
	// deferral is how long a low-priority wake is deferred, once, if all lanes are busy.
	deferral = 5 * time.Minute
	// spacing is the minimum time between two wakes of an agent.
	spacing = 5 * time.Second
	// capWindow is the period in which the daily limit counts wakes.
	capWindow = 24 * time.Hour
)

// PriorityLow marks a wake that is deferred if all lanes are busy, and dropped if they are still
// busy then.
const PriorityLow = "low"

// Wake is the next run that an agent has planned for itself. An agent has at most one.
type Wake struct {
	ID           int64         `json:"id"` // never reused, because it identifies the run
	Agent        string        `json:"agent"`
	At           time.Time     `json:"at"`    // when the wake fires
	AskedAt      time.Time     `json:"asked"` // requested time, before the limits were applied
	Instructions string        `json:"instructions"`
	ContextViews []string      `json:"context_views"`
	Priority     string        `json:"priority"` // normal or low
	OnMiss       domain.OnMiss `json:"on_miss"`
	ScheduledBy  string        `json:"scheduled_by"`
	Run          int64         `json:"run"`      // run that planned the wake; 0 if no run did
	Job          string        `json:"job"`      // job that began the chain of wakes; its limits apply to the wakes, too
	Depth        int           `json:"depth"`    // number of consecutive wakes up to this one, including it
	Deferred     bool          `json:"deferred"` // already deferred once
	CreatedAt    time.Time     `json:"created_at"`
	// Key is the key of the call that planned the wake. A call repeated after a crash does not plan
	// again a wake that has fired or been replaced. Key is write-only.
	Key string `json:"-"`
}

// Of returns a text that is part of a run's detail only if runs of the job planned its wake.
func Of(job string) string { return fmt.Sprintf(`"job":%q,"depth":`, job) }

// Usage holds the facts that decide whether a wake may be planned.
type Usage struct {
	Started int // wakes of the agent that started in the last 24 hours
	Paused  bool
}

// Columns are the columns of a wake, in the order of Fields.
const Columns = `id, agent, at, asked_at, instructions, context_views, priority, on_miss, scheduled_by, run, job, depth, deferred, created_at`

// Fields returns the scan destinations for Columns.
func Fields(s *Wake) []any {
	return []any{
		&s.ID, &s.Agent, store.Time(&s.At), store.Time(&s.AskedAt), &s.Instructions, store.Decoded(&s.ContextViews), &s.Priority, &s.OnMiss, &s.ScheduledBy,
		&s.Run, &s.Job, &s.Depth, &s.Deferred, store.Time(&s.CreatedAt),
	}
}

// Wakes stores the next run that each agent has planned for itself.
type Wakes struct{ DB *store.DB }

// List returns the planned wakes, earliest first.
func (l *Wakes) List(ctx context.Context) ([]Wake, error) {
	return store.List(store.Reads(ctx, l.DB), Fields, `select `+Columns+` from slots order by at, id`)
}

// Next returns the planned wake of an agent, and reports whether there is one.
func (l *Wakes) Next(ctx context.Context, agent string) (Wake, bool, error) {
	return store.OrFalse(store.One(store.Reads(ctx, l.DB), Fields, `select `+Columns+` from slots where agent = $1`, agent))
}

// Usage returns the current usage of an agent.
func (l *Wakes) Usage(ctx context.Context, agent string) (Usage, error) {
	return usage(store.Reads(ctx, l.DB), agent, l.DB.Now())
}

func usage(from store.Querier, agent string, now time.Time) (u Usage, err error) {
	if u.Started, err = store.Value[int](from, countWakes, agent, store.Millis(now.Add(-capWindow)), store.Millis(now)); err != nil {
		return u, err
	}
	pauses, err := pause.At(from, now)
	_, u.Paused = pause.Paused(pauses, "", agent, now)
	return u, err
}

// countWakes ignores runs that started later than now, when the clock was ahead.
const countWakes = `select count(*) from runs where agent = $1 and triggered_by = 'self' and started_at > $2 and started_at <= $3`

// ErrUsageChanged is returned if the usage has changed since a wake was decided on.
var ErrUsageChanged = errors.New("the usage of wakes has changed")

// Set stores the next wake of an agent, replacing the previous one. The wake was decided on usage
// on. If the usage has changed, Set returns ErrUsageChanged, and the caller must decide again.
func (l *Wakes) Set(ctx context.Context, s Wake, on Usage) (Wake, error) {
	return store.InTx(ctx, l.DB, func(tx *store.Tx) (Wake, error) {
		now := l.DB.Now()
		u, err := usage(tx, s.Agent, now)
		if err != nil {
			return s, err
		}
		if u != on {
			return s, ErrUsageChanged
		}

		// A new wake can be deferred even if the replaced one already was.
		out := s
		out.CreatedAt, out.Deferred = store.Instant(store.Millis(now)), false
		err = insertWake(tx, &out)
		return out, err
	})
}

func insertWake(tx *store.Tx, s *Wake) error {
	tx.Replanned = true
	if again, err := wasPlannedBefore(tx, s); err != nil || again {
		return err
	}

	text, err := json.Marshal(append([]string{}, s.ContextViews...)) // not null if there are no views
	if err != nil {
		return err
	}

	// At is limited to a maximum time, but AskedAt is not. A year above 9999 would make the event
	// below fail.
	if s.AskedAt.After(lastInstant) {
		s.AskedAt = lastInstant
	}

	// Another process may insert its wake between the two statements. The last write wins, so
	// delete that wake, too.
	for err = sql.ErrNoRows; errors.Is(err, sql.ErrNoRows); {
		tx.Run(`delete from slots where agent = $1`, s.Agent)
		s.ID, err = store.Value[int64](tx, `insert into slots (agent, at, asked_at, instructions, context_views, priority, on_miss, scheduled_by, run, job, depth, created_at)
			values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) on conflict (agent) do nothing returning id`,
			s.Agent, store.Millis(s.At), store.Millis(s.AskedAt), tx.Redact(s.Instructions), string(text), s.Priority, s.OnMiss, s.ScheduledBy, s.Run, s.Job, s.Depth, store.Millis(s.CreatedAt))
	}
	if err != nil {
		return err
	}

	s.At, s.AskedAt = store.Instant(store.Millis(s.At)), store.Instant(store.Millis(s.AskedAt))
	return record.AddEvent(tx, record.Event{Run: s.Run, Job: s.Job, At: s.CreatedAt, Kind: "slot.set"},
		map[string]any{"agent": s.Agent, "at": s.At, "asked": s.AskedAt, "by": s.ScheduledBy, "depth": s.Depth, "slot": s.ID, "key": s.Key})
}

// wasPlannedBefore reports whether the same call planned a wake before a crash that has fired or
// been replaced since. Planning it again would run it twice.
func wasPlannedBefore(tx *store.Tx, s *Wake) (bool, error) {
	if s.Run == 0 || s.Key == "" {
		return false, nil
	}

	set, err := store.Values[[]byte](tx, `select data from events where run = $1 and run <> 0 and kind = 'slot.set' order by seq`, s.Run)
	if err != nil {
		return false, err
	}

	for _, data := range set {
		var before struct {
			Slot int64  `json:"slot"`
			Key  string `json:"key"`
		}
		if err := json.Unmarshal(data, &before); err != nil {
			return false, fmt.Errorf("the record of run %d is damaged: %w", s.Run, err)
		}
		if before.Key != s.Key {
			continue
		}

		// The wake has not fired, so the repeated call may replace it.
		if open, err := store.Value[bool](tx, `select exists (select 1 from slots where id = $1)`, before.Slot); err != nil || open {
			return false, err
		}

		s.ID = before.Slot
		return true, nil
	}

	return false, nil
}

// Cancel cancels the next wake of an agent, and reports whether there was one.
func (l *Wakes) Cancel(ctx context.Context, agent, by string) (bool, error) {
	return l.cancel(ctx, agent, "cancelled by "+by)
}

func (l *Wakes) cancel(ctx context.Context, agent, reason string) (bool, error) {
	return store.InTx(ctx, l.DB, func(tx *store.Tx) (bool, error) {
		s, planned, err := store.OrFalse(store.One(tx, Fields, `select `+Columns+` from slots where agent = $1`+l.DB.ForUpdate, agent))
		if err != nil || !planned {
			return false, err
		}
		tx.Run(`delete from slots where id = $1`, s.ID)
		tx.Replanned = true
		return true, record.AddEvent(tx, record.Event{Job: s.Job, At: l.DB.Now(), Kind: "slot.cleared"}, map[string]any{"agent": agent, "at": s.At, "reason": reason})
	})
}

// CancelExcept cancels the wakes of all agents except the given ones, because self-scheduling is
// off for the others.
func (l *Wakes) CancelExcept(ctx context.Context, agents []string) error {
	all, err := l.List(ctx)
	if err != nil {
		return err
	}

	for _, s := range all {
		// Cancel by agent, not by ID: the agent may have replaced its wake since the list was read.
		if slices.Contains(agents, s.Agent) {
			continue
		}
		if _, err := l.cancel(ctx, s.Agent, "self-scheduling is switched off"); err != nil {
			return err
		}
	}
	return nil
}

// Decisions about a wake that is due.
const (
	Run      = "run"
	Deferred = "later"    // deferred until At
	Paused   = "paused"   // keeps waiting, and fires when the pause ends
	Dropped  = "dropped"  // recorded as a cancelled run with the reason
	Vanished = "vanished" // replaced or cancelled meanwhile
)

// State holds the facts that decide about a due wake.
type State struct {
	Pauses    []pause.Pause
	Saturated bool      // all lanes are busy
	LastWake  time.Time // when the agent's last wake that was not dropped was queued
}

// Decision is the decision about a wake. If the wake was replaced or cancelled meanwhile, only its
// ID is set.
type Decision struct {
	Wake     Wake // Wake.Deferred includes this decision
	Decision string
	Reason   string
	At       time.Time // set for Deferred, and for Paused if the end is known
	Run      int64
}

// Decide returns the decision about a due wake. It has no side effects.
func Decide(now time.Time, s Wake, st State) Decision {
	d := Decision{Wake: s, Decision: Run}
	if now.Before(s.At) {
		d.Decision, d.At, d.Reason = Deferred, s.At, "its time has not come"
		return d
	}

	// Check pauses before lateness, because the lateness at the end of the pause counts.
	if p, ok := pause.Paused(st.Pauses, "", s.Agent, now); ok {
		d.Decision, d.Reason, d.At = Paused, p.String(), p.End()
		return d
	}

	late, since := now.Sub(s.At), now.Sub(st.LastWake)
	switch {
	case late > staleAfter && s.OnMiss == domain.MissSkip:
		d.Decision, d.Reason = Dropped, fmt.Sprintf("stale-skip: its time passed %s ago; on_miss is skip", late.Round(time.Second))
	// Check spacing before load, so that spacing does not use up the single deferral of a
	// low-priority wake.
	// A larger difference means that the clock was set back.
	case !st.LastWake.IsZero() && since < spacing && since > -spacing:
		d.Decision, d.At, d.Reason = Deferred, st.LastWake.Add(spacing), "the agent was woken a moment ago"
	case s.Priority == PriorityLow && st.Saturated && s.Deferred:
		d.Decision, d.Reason = Dropped, "shed: its priority is low, and every lane was taken twice"
	case s.Priority == PriorityLow && st.Saturated:
		d.Decision, d.At, d.Reason = Deferred, now.Add(deferral), "its priority is low, and every lane is taken"
		d.Wake.Deferred = true
	case late > staleAfter:
		d.Reason = fmt.Sprintf("%s late; on_miss is %s", late.Round(time.Second), s.OnMiss)
	}

	return d
}
