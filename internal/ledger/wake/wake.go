// Package wake has the next run that each agent has planned for itself, and decides what becomes of a wake that is due.
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

// lastInstant is the last one that RFC 3339 and JSON can say.
var lastInstant = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

const (
	// staleAfter is how late a wake may be before its on_miss is asked (OSA-75).
	staleAfter = 5 * time.Minute
	// deferral is how long a wake of low priority is deferred, once, when every lane is taken (C-2).
	deferral = 5 * time.Minute
	// spacing is the least time between two wakes of one agent (OSA-75).
	spacing = 5 * time.Second
	// capWindow is what the daily cap counts over (OSA-74).
	capWindow = 24 * time.Hour
)

// PriorityLow marks a wake that may be deferred, and then dropped, when every lane is taken.
const PriorityLow = "low"

// Wake is an agent's single self-scheduled next run (OSA-71).
type Wake struct {
	ID           int64         `json:"id"` // never used again: it is the identity of the run
	Agent        string        `json:"agent"`
	At           time.Time     `json:"at"`    // when it fires
	AskedAt      time.Time     `json:"asked"` // what was asked for before clamping
	Instructions string        `json:"instructions"`
	ContextViews []string      `json:"context_views"`
	Priority     string        `json:"priority"` // normal or low
	OnMiss       domain.OnMiss `json:"on_miss"`
	ScheduledBy  string        `json:"scheduled_by"`
	Run          int64         `json:"run"`      // that asked for it, 0 when none did
	Job          string        `json:"job"`      // at the beginning of the chain: its bounds hold for the wakes too
	Depth        int           `json:"depth"`    // how many wakes in a row led here, this one included
	Deferred     bool          `json:"deferred"` // was put off once
	CreatedAt    time.Time     `json:"created_at"`
	// Key is the call of Run that asked. One that is repeated after a crash does not plan
	// again what has fired or has been replaced meanwhile. It is not read back.
	Key string `json:"-"`
}

// Of is contained in the detail of each run of a wake that runs of a job planned, and in no other detail.
func Of(job string) string { return fmt.Sprintf(`"job":%q,"depth":`, job) }

// Usage is what decides whether a wake may be planned.
type Usage struct {
	Started int // wakes of the agent that started in the last 24 hours
	Paused  bool
}

const Columns = `id, agent, at, asked_at, instructions, context_views, priority, on_miss, scheduled_by, run, job, depth, deferred, created_at`

func Fields(s *Wake) []any {
	return []any{
		&s.ID, &s.Agent, store.Time(&s.At), store.Time(&s.AskedAt), &s.Instructions, store.Decoded(&s.ContextViews), &s.Priority, &s.OnMiss, &s.ScheduledBy,
		&s.Run, &s.Job, &s.Depth, &s.Deferred, store.Time(&s.CreatedAt),
	}
}

// Wakes has the next run that each agent has planned for itself.
type Wakes struct{ DB *store.DB }

// List lists what agents have planned, the earliest first.
func (l *Wakes) List(ctx context.Context) ([]Wake, error) {
	return store.List(store.Reads(ctx, l.DB), Fields, `select `+Columns+` from slots order by at, id`)
}

// Next is what an agent has planned; false when it has nothing.
func (l *Wakes) Next(ctx context.Context, agent string) (Wake, bool, error) {
	return store.OrFalse(store.One(store.Reads(ctx, l.DB), Fields, `select `+Columns+` from slots where agent = $1`, agent))
}

// Usage reads what a plan would be decided on now.
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

// countWakes leaves out what started later than now: the clock ran ahead then.
const countWakes = `select count(*) from runs where agent = $1 and triggered_by = 'self' and started_at > $2 and started_at <= $3`

// ErrUsageChanged reports that the usage that a wake was decided on has changed.
var ErrUsageChanged = errors.New("the usage of wakes has changed")

// Set writes an agent's next run, which was decided on a usage. If that has changed, it returns ErrWakeUsageChanged
// and the wake must be decided on again. The last write wins.
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

		// A new plan may be deferred again, whatever happened to the one it replaces.
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

	text, err := json.Marshal(append([]string{}, s.ContextViews...)) // never null
	if err != nil {
		return err
	}

	// At is clamped, AskedAt is not: a year that JSON cannot write would fail the event below.
	if s.AskedAt.After(lastInstant) {
		s.AskedAt = lastInstant
	}

	// Another process may insert its plan between the two statements. The last write wins, so
	// that one is deleted as well.
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

// wasPlannedBefore reports whether the same call, before a crash, planned a wake that has
// fired or been replaced since; planning it again would run it twice.
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

		// Still planned: nothing has run, and the repeated call may replace it.
		if open, err := store.Value[bool](tx, `select exists (select 1 from slots where id = $1)`, before.Slot); err != nil || open {
			return false, err
		}

		s.ID = before.Slot
		return true, nil
	}

	return false, nil
}

// Cancel cancels an agent's next wake; it reports whether there was one.
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

// CancelExcept cancels the wakes of all agents but these: the self-scheduling of the others is
// switched off (OSA-70).
func (l *Wakes) CancelExcept(ctx context.Context, agents []string) error {
	all, err := l.List(ctx)
	if err != nil {
		return err
	}

	for _, s := range all {
		// By agent and not by id: what it has planned since the list was read has to go too.
		if slices.Contains(agents, s.Agent) {
			continue
		}
		if _, err := l.cancel(ctx, s.Agent, "self-scheduling is switched off"); err != nil {
			return err
		}
	}
	return nil
}

// What becomes of a wake that is due.
const (
	Run      = "run"
	Deferred = "later"    // put off until At
	Paused   = "paused"   // stays, and fires when the pause is over
	Dropped  = "dropped"  // becomes a cancelled run that says why
	Vanished = "vanished" // was replaced or cancelled meanwhile
)

// State is what decides about a wake that is due.
type State struct {
	Pauses    []pause.Pause
	Saturated bool      // every lane is taken
	LastWake  time.Time // when the agent's last wake was queued that was not dropped
}

// Decision is what became of a wake. Of one that was replaced or cancelled meanwhile,
// only the id is known.
type Decision struct {
	Wake     Wake // Deferred says whether it has been put off by now
	Decision string
	Reason   string
	At       time.Time // of WakeDeferred; of WakePaused when the end is known
	Run      int64
}

// Decide decides what becomes of a wake. It is pure (OSA-75, OSA-78, C-2).
func Decide(now time.Time, s Wake, st State) Decision {
	d := Decision{Wake: s, Decision: Run}
	if now.Before(s.At) {
		d.Decision, d.At, d.Reason = Deferred, s.At, "its time has not come"
		return d
	}

	// A pause comes before lateness: how late the wake is counts when the pause is over.
	if p, ok := pause.Paused(st.Pauses, "", s.Agent, now); ok {
		d.Decision, d.Reason, d.At = Paused, p.String(), p.End()
		return d
	}

	late, since := now.Sub(s.At), now.Sub(st.LastWake)
	switch {
	case late > staleAfter && s.OnMiss == domain.MissSkip:
		d.Decision, d.Reason = Dropped, fmt.Sprintf("stale-skip: its time passed %s ago; on_miss is skip", late.Round(time.Second))
	// Spacing comes before shedding, so that it does not use up the one deferral of a low priority.
	case !st.LastWake.IsZero() && since < spacing && since > -spacing: // further ahead: the clock was set back
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
