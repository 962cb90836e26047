package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
	"slices"
	"time"

	"rouse/internal/domain"
)

// lastInstant is the last one that RFC 3339 and JSON can say.
var lastInstant = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

const (
	// wakeStaleAfter is how late a wake may be before its on_miss is asked (OSA-75).
	wakeStaleAfter = 5 * time.Minute
	// wakeDeferral is how long a wake of low priority is deferred, once, when every lane is taken (C-2).
	wakeDeferral = 5 * time.Minute
	// wakeSpacing is the least time between two wakes of one agent (OSA-75).
	wakeSpacing = 5 * time.Second
	// wakeCapWindow is what the daily cap counts over (OSA-74).
	wakeCapWindow = 24 * time.Hour
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

// WakeDetail is the detail of a wake that its run gets.
type WakeDetail struct {
	ID           int64     `json:"slot"`
	Instructions string    `json:"instructions"`
	ContextViews []string  `json:"context_views,omitempty"`
	ScheduledBy  string    `json:"scheduled_by"`
	Planned      time.Time `json:"planned"`
	Asked        time.Time `json:"asked"`
	AskedBy      int64     `json:"asked_by,omitempty"` // run
	Job          string    `json:"job,omitempty"`
	Depth        int       `json:"depth"`
}

// wakeOf is contained in the detail of each run of a wake that runs of a job planned, and in no other detail.
func wakeOf(job string) string { return fmt.Sprintf(`"job":%q,"depth":`, job) }

// WakeUsage is what decides whether a wake may be planned.
type WakeUsage struct {
	Started int // wakes of the agent that started in the last 24 hours
	Paused  bool
}

const wakeColumns = `id, agent, at, asked_at, instructions, context_views, priority, on_miss, scheduled_by, run, job, depth, deferred, created_at`

func wakeFields(s *Wake) []any {
	return []any{
		&s.ID, &s.Agent, store.Time(&s.At), store.Time(&s.AskedAt), &s.Instructions, store.Decoded(&s.ContextViews), &s.Priority, &s.OnMiss, &s.ScheduledBy,
		&s.Run, &s.Job, &s.Depth, &s.Deferred, store.Time(&s.CreatedAt),
	}
}

// Wakes lists what agents have planned, the earliest first.
func (l *Ledger) Wakes(ctx context.Context) ([]Wake, error) {
	return store.List(store.Reads(ctx, l.DB), wakeFields, `select `+wakeColumns+` from slots order by at, id`)
}

// NextWake is what an agent has planned; false when it has nothing.
func (l *Ledger) NextWake(ctx context.Context, agent string) (Wake, bool, error) {
	return store.OrFalse(store.One(store.Reads(ctx, l.DB), wakeFields, `select `+wakeColumns+` from slots where agent = $1`, agent))
}

// WakeUsage reads what a plan would be decided on now.
func (l *Ledger) WakeUsage(ctx context.Context, agent string) (WakeUsage, error) {
	return wakeUsage(store.Reads(ctx, l.DB), agent, l.Now())
}

func wakeUsage(from store.Querier, agent string, now time.Time) (u WakeUsage, err error) {
	if u.Started, err = store.Value[int](from, countWakes, agent, store.Millis(now.Add(-wakeCapWindow)), store.Millis(now)); err != nil {
		return u, err
	}
	pauses, err := pausesAt(from, now)
	_, u.Paused = Paused(pauses, "", agent, now)
	return u, err
}

// countWakes leaves out what started later than now: the clock ran ahead then.
const countWakes = `select count(*) from runs where agent = $1 and triggered_by = 'self' and started_at > $2 and started_at <= $3`

// ErrWakeUsageChanged reports that the usage that a wake was decided on has changed.
var ErrWakeUsageChanged = errors.New("the usage of wakes has changed")

// SetWake writes an agent's next run, which was decided on a usage. If that has changed, it returns ErrWakeUsageChanged
// and the wake must be decided on again. The last write wins.
func (l *Ledger) SetWake(ctx context.Context, s Wake, on WakeUsage) (Wake, error) {
	return store.InTx(ctx, l.DB, func(tx *store.Tx) (Wake, error) {
		now := l.Now()
		u, err := wakeUsage(tx, s.Agent, now)
		if err != nil {
			return s, err
		}
		if u != on {
			return s, ErrWakeUsageChanged
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
	return record.AddEvent(tx, Event{Run: s.Run, Job: s.Job, At: s.CreatedAt, Kind: "slot.set"},
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

// CancelWake cancels an agent's next wake; it reports whether there was one.
func (l *Ledger) CancelWake(ctx context.Context, agent, by string) (bool, error) {
	return l.cancelWake(ctx, agent, "cancelled by "+by)
}

func (l *Ledger) cancelWake(ctx context.Context, agent, reason string) (bool, error) {
	return store.InTx(ctx, l.DB, func(tx *store.Tx) (bool, error) {
		s, planned, err := store.OrFalse(store.One(tx, wakeFields, `select `+wakeColumns+` from slots where agent = $1`+l.ForUpdate, agent))
		if err != nil || !planned {
			return false, err
		}
		tx.Run(`delete from slots where id = $1`, s.ID)
		tx.Replanned = true
		return true, record.AddEvent(tx, Event{Job: s.Job, At: l.Now(), Kind: "slot.cleared"}, map[string]any{"agent": agent, "at": s.At, "reason": reason})
	})
}

// CancelWakesExcept cancels the wakes of all agents but these: the self-scheduling of the others is
// switched off (OSA-70).
func (l *Ledger) CancelWakesExcept(ctx context.Context, agents []string) error {
	all, err := l.Wakes(ctx)
	if err != nil {
		return err
	}

	for _, s := range all {
		// By agent and not by id: what it has planned since the list was read has to go too.
		if slices.Contains(agents, s.Agent) {
			continue
		}
		if _, err := l.cancelWake(ctx, s.Agent, "self-scheduling is switched off"); err != nil {
			return err
		}
	}
	return nil
}

// What becomes of a wake that is due.
const (
	WakeRun      = "run"
	WakeDeferred = "later"    // put off until At
	WakePaused   = "paused"   // stays, and fires when the pause is over
	WakeDropped  = "dropped"  // becomes a cancelled run that says why
	wakeVanished = "vanished" // was replaced or cancelled meanwhile
)

// WakeState is what decides about a wake that is due.
type WakeState struct {
	Pauses    []Pause
	Saturated bool      // every lane is taken
	LastWake  time.Time // when the agent's last wake was queued that was not dropped
}

// WakeDecision is what became of a wake. Of one that was replaced or cancelled meanwhile,
// only the id is known.
type WakeDecision struct {
	Wake     Wake // Deferred says whether it has been put off by now
	Decision string
	Reason   string
	At       time.Time // of WakeDeferred; of WakePaused when the end is known
	Run      int64
}

// DecideWake decides what becomes of a wake. It is pure (OSA-75, OSA-78, C-2).
func DecideWake(now time.Time, s Wake, st WakeState) WakeDecision {
	d := WakeDecision{Wake: s, Decision: WakeRun}
	if now.Before(s.At) {
		d.Decision, d.At, d.Reason = WakeDeferred, s.At, "its time has not come"
		return d
	}

	// A pause comes before lateness: how late the wake is counts when the pause is over.
	if p, ok := Paused(st.Pauses, "", s.Agent, now); ok {
		d.Decision, d.Reason, d.At = WakePaused, p.String(), p.end()
		return d
	}

	late, since := now.Sub(s.At), now.Sub(st.LastWake)
	switch {
	case late > wakeStaleAfter && s.OnMiss == domain.MissSkip:
		d.Decision, d.Reason = WakeDropped, fmt.Sprintf("stale-skip: its time passed %s ago; on_miss is skip", late.Round(time.Second))
	// Spacing comes before shedding, so that it does not use up the one deferral of a low priority.
	case !st.LastWake.IsZero() && since < wakeSpacing && since > -wakeSpacing: // further ahead: the clock was set back
		d.Decision, d.At, d.Reason = WakeDeferred, st.LastWake.Add(wakeSpacing), "the agent was woken a moment ago"
	case s.Priority == PriorityLow && st.Saturated && s.Deferred:
		d.Decision, d.Reason = WakeDropped, "shed: its priority is low, and every lane was taken twice"
	case s.Priority == PriorityLow && st.Saturated:
		d.Decision, d.At, d.Reason = WakeDeferred, now.Add(wakeDeferral), "its priority is low, and every lane is taken"
		d.Wake.Deferred = true
	case late > wakeStaleAfter:
		d.Reason = fmt.Sprintf("%s late; on_miss is %s", late.Round(time.Second), s.OnMiss)
	}

	return d
}

// countRunning repeats the condition of the partial index runs_unfinished: SQLite uses such an
// index only where it can see that the condition holds.
const countRunning = `select count(*) from runs where state = 'running' and state <> 'finished'`

// FireWakes decides about wakes that are due, by their ids. A wake is deleted in the
// transaction that queues its run. lanes is how many runs may execute at once; 0: no limit.
func (l *Ledger) FireWakes(ctx context.Context, now time.Time, lanes int, ids ...int64) ([]WakeDecision, error) {
	out := make([]WakeDecision, len(ids))
	err := store.Write(ctx, l.DB, func(tx *store.Tx) error {
		pauses, err := pausesAt(tx, now)
		if err != nil {
			return err
		}

		// Counted once for the batch: what it queues is not running yet.
		running, err := store.Value[int](tx, countRunning)
		if err != nil {
			return err
		}

		for i, id := range ids {
			if out[i], err = l.fireWake(tx, now, id, WakeState{Pauses: pauses, Saturated: lanes > 0 && running >= lanes}); err != nil {
				return err
			}
		}

		return nil
	})

	return out, err
}

// fireWake locks the wake's row for this transaction: of two processes the second waits,
// and finds it gone or deferred.
func (l *Ledger) fireWake(tx *store.Tx, now time.Time, id int64, st WakeState) (WakeDecision, error) {
	s, planned, err := store.OrFalse(store.One(tx, wakeFields, `select `+wakeColumns+` from slots where id = $1`+l.ForUpdate, id))
	if err != nil || !planned {
		return WakeDecision{Wake: Wake{ID: id}, Decision: wakeVanished}, err
	}

	if st.LastWake, err = store.OrZero(store.TimeOf(tx, lastWake, s.Agent)); err != nil {
		return WakeDecision{}, err
	}
	d := DecideWake(now, s, st)
	switch {
	case d.Decision == WakeRun || d.Decision == WakeDropped:
		d.Run, err = l.enqueueWake(tx, now, d)
	// A wake that came too early keeps its time, and there is nothing to write.
	case d.Decision == WakeDeferred && !d.At.Equal(s.At):
		tx.Run(`update slots set at = $1, deferred = $2 where id = $3`, store.Millis(d.At), store.Flag(d.Wake.Deferred), s.ID)
		err = record.AddEvent(tx, Event{Job: s.Job, At: now, Kind: "slot.later"}, map[string]any{"agent": s.Agent, "at": d.At.UTC(), "reason": d.Reason})
	}

	return d, err
}

// lastWake ignores runs that were dropped or cancelled before they started: they woke nobody.
const lastWake = `select queued_at from runs where agent = $1 and triggered_by = 'self' and (state <> 'finished' or started_at <> 0) order by id desc limit 1`

// enqueueWake turns a wake into a run: one to be executed, or one that says why it was not.
func (l *Ledger) enqueueWake(tx *store.Tx, now time.Time, d WakeDecision) (int64, error) {
	s := d.Wake
	of := Detail{Source: "slot", Wake: &WakeDetail{ID: s.ID, Instructions: s.Instructions, ContextViews: s.ContextViews,
		ScheduledBy: s.ScheduledBy, Planned: s.At.UTC(), Asked: s.CreatedAt.UTC(), AskedBy: s.Run, Job: s.Job, Depth: s.Depth}}
	detail, err := json.Marshal(of)
	if err != nil {
		return 0, err
	}

	a, err := insertRun(tx, now, Request{Agent: s.Agent, Trigger: domain.TriggerSelf, Detail: of, ScheduledAt: s.At}, fmt.Sprintf("slot/%d", s.ID), string(detail))
	if err != nil {
		return 0, err
	}
	tx.Run(`delete from slots where id = $1`, s.ID)

	if d.Decision == WakeDropped {
		// The run exists only to say why nothing ran. It was never started, so finish needs no more of it.
		err = l.finish(tx, Run{ID: a.Run, Trigger: domain.TriggerSelf}, Result{Outcome: domain.OutcomeCancelled, Error: d.Reason}, now)
	}

	return a.Run, err
}
