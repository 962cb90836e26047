package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/runs"
)

// missGrace is the maximum delay with which a scheduled run still counts as on time. The scheduler
// uses the same value.
const missGrace = 30 * time.Second

// holds finds the obstacles of queued runs and records them.
type holds struct {
	o        *Options
	log      *slog.Logger
	recorder *recorder

	looking sync.Mutex // guards lookedAt
	// lookedAt is the time of the last check of held runs. See EndMissedHolds.
	lookedAt time.Time

	mu      sync.Mutex
	blocked map[int64]string // reason why each run stays queued
}

// admit adds the runs without obstacles to the fair queue.
func (d *Dispatcher) admit(ctx, writing context.Context, now time.Time, runs []ledger.Run) error {
	look := d.o.Executor.Obstacles
	// Obstacles can differ between nodes. The node that gets the run checks them (Work).
	if d.nodes != nil {
		look = func(context.Context, ledger.Run) []ledger.Obstacle { return nil }
		d.mu.Lock()
		runs = slices.DeleteFunc(runs, func(r ledger.Run) bool { _, sent := d.lanes.running[r.ID]; return sent || d.nodes.rests(r) })
		d.mu.Unlock()
	}
	free, err := d.holds.unblocked(ctx, writing, now, runs, look)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range free {
		d.lanes.Add(r)
	}
	return nil
}

// unblocked returns the runs without obstacles. It records the obstacles of the other runs, once
// for each reason, and starts no attempt for them.
func (h *holds) unblocked(ctx, writing context.Context, now time.Time, runs []ledger.Run, look func(context.Context, ledger.Run) []ledger.Obstacle) ([]ledger.Run, error) {
	var holds []ledger.Hold
	var free, released []ledger.Run
	before, err := h.runsBefore(ctx, runs)
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		by := look(ctx, r)
		if w, waits := before[r.Job]; waits && h.behind(r.Job) && r.Behind() {
			by = append(by, ledger.Obstacle{Kind: ledger.ObstacleOverlap, Source: ledger.ObstacleOverlap + "/" + r.Job, Quiet: true,
				Text: fmt.Sprintf("run %d of the job %s; see: rouse inbox", w.Run, w.Text)})
		}
		switch {
		case len(by) > 0 && h.noteBlocked(r, by):
			holds = append(holds, h.hold(r, by))
		case len(by) > 0:
		case r.Blocked.Now():
			released = append(released, r)
		default:
			free = append(free, r)
		}
	}

	if err := h.o.Ledger.HoldRuns(writing, holds...); err != nil {
		for _, hold := range holds { // recorded again on the next pass
			h.forgetBlocked(hold.Run)
		}
		return nil, fmt.Errorf("why runs do not start could not be recorded: %w", err)
	}
	freed, err := h.release(ctx, writing, now, released)
	if err != nil {
		return nil, err
	}

	all := slices.Concat(free, freed)
	slices.SortFunc(all, func(a, b ledger.Run) int { return cmp.Compare(a.ID, b.ID) })
	for _, r := range all {
		h.forgetBlocked(r.ID)
	}
	return all, nil
}

func (h *holds) forgetBlocked(id int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.blocked, id)
}

// behind reports whether the scheduled runs of a job run one after another, even if one of them
// waits for a person.
func (h *holds) behind(job string) bool { return jobLanes(h.o.Executor.Policy(job)) > 0 }

// runsBefore returns the runs that wait for a person, by job. It returns nil if no queued run has
// to wait for them.
func (h *holds) runsBefore(ctx context.Context, runs []ledger.Run) (map[string]runs.WaitingRun, error) {
	if !slices.ContainsFunc(runs, ledger.Run.Behind) {
		return nil, nil
	}
	before, err := h.o.Ledger.Runs.ForPersons(ctx)
	if err != nil {
		return nil, fmt.Errorf("the runs that wait for a person cannot be read: %w", err)
	}
	return before, nil
}

// release records that the obstacles of some runs are gone. It returns those that still have to
// start.
func (h *holds) release(ctx, writing context.Context, now time.Time, released []ledger.Run) (out []ledger.Run, err error) {
	ids := make([]int64, len(released))
	for i, r := range released {
		ids[i] = r.ID
	}
	if err := h.o.Ledger.ReleaseRuns(writing, ids...); err != nil {
		return nil, err
	}

	for _, r := range released {
		over, err := h.missed(ctx, writing, now, r)
		if err != nil {
			return nil, err
		}
		if !over {
			out = append(out, r)
		}
	}
	return out, nil
}

// noteBlocked logs why a run stays queued. It reports whether the reason is new.
func (h *holds) noteBlocked(r ledger.Run, by []ledger.Obstacle) bool {
	why := record.ObstaclesText(by)
	h.mu.Lock()
	defer h.mu.Unlock()
	was, known := h.blocked[r.ID]
	if was == why && r.Blocked.Now() {
		return false
	}

	h.blocked[r.ID] = why
	if !known && r.Blocked.Now() && h.o.Ledger.Nodes.Membership() != nil { // another node has recorded the reason
		return false
	}
	h.log.Warn("a run stays queued", "job", r.Job, "run", r.ID, "reason", why)
	return true
}

func (h *holds) hold(r ledger.Run, by []ledger.Obstacle) ledger.Hold {
	hold := ledger.Hold{Run: r.ID, By: by, Notices: map[string][]ledger.Notice{}}
	for _, o := range by {
		if !o.Quiet {
			hold.Notices[o.Source] = h.o.Executor.ObstacleNotices(r, o)
		}
	}
	return hold
}

// missed ends a scheduled run that was blocked for longer than its job's catch-up rules allow. It
// applies the same rules as after an outage. The run also stands for occurrences that came due in
// the meantime, so the latest of them counts.
func (h *holds) missed(ctx, writing context.Context, now time.Time, r ledger.Run) (over bool, err error) {
	if r.Trigger != domain.TriggerSchedule || r.ScheduledAt.IsZero() || r.Attempt > 0 {
		return false, nil
	}

	latest, err := h.o.Ledger.Occurrences.Latest(ctx, r.Job, now)
	if err != nil {
		return false, err
	}
	if latest.Before(r.ScheduledAt) {
		latest = r.ScheduledAt
	}

	why := missedReason(h.o.Executor.Policy(r.Job), now.Sub(latest))
	if why == "" {
		return false, nil
	}
	why = fmt.Sprintf("blocked for %s (%s); %s", now.Sub(r.Blocked.Since).Round(time.Second), record.ObstaclesText(r.Blocked.By), why)
	return true, h.recorder.finishUnstarted(writing, r.ID, ledger.Result{Outcome: domain.OutcomeSkipped, Error: why})
}

// EndMissedHolds ends the queued runs that are too late to start. Their jitter or window ended
// while no process could start them, because the machine slept or no daemon ran. The scheduler
// calls it before it decides about occurrences, so that an ended run does not prevent a newer one.
func (d *Dispatcher) EndMissedHolds(ctx context.Context, now time.Time) error {
	d.holds.looking.Lock()
	defer d.holds.looking.Unlock()

	from := d.holds.lookedAt
	if now.Sub(from) > missGrace {
		cause := "the machine slept, or its clock was set forward"
		if from.IsZero() {
			cause = "no daemon ran"
		}
		held, err := d.o.Ledger.Runs.Held(ctx, from, now.Add(-missGrace))
		if err != nil {
			return fmt.Errorf("the runs that are held back cannot be read: %w", err)
		}
		for _, r := range held {
			if why := MissedHold(d.o.Executor.Policy(r.Job), now.Sub(r.NotBefore), cause); why != "" {
				if err := d.recorder.finishUnstarted(ctx, r.ID, ledger.Result{Outcome: domain.OutcomeSkipped, Error: why}); err != nil {
					return err
				}
			}
		}
	}
	d.holds.lookedAt = now
	return nil
}

// MissedHold returns the reason why a run does not start that long after the end of its hold, or ""
// if it starts. cause is the reason for the delay.
func MissedHold(p Policy, late time.Duration, cause string) string {
	why := missedReason(p, late)
	if by, rest, ok := strings.Cut(why, ";"); ok {
		return fmt.Sprintf("%s (%s);%s", by, cause, rest)
	}
	return why
}

// missedReason returns the reason why an occurrence that is that late is skipped, or "" if it is
// not.
func missedReason(p Policy, late time.Duration) string {
	window := cmp.Or(p.CatchupWindow, defaultCatchup)
	switch {
	case late <= missGrace:
		return ""
	case late > window:
		return fmt.Sprintf("missed by %s, more than the catch-up window of %s", late.Round(time.Second), window)
	case p.OnMiss == domain.MissSkip:
		return fmt.Sprintf("missed by %s; on_miss is skip", late.Round(time.Second))
	}
	return ""
}
