package watcher

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"rouse/watcher/settle"
)

// State is the current activity of a watch.
type State string

// The states of a watch. It goes from idle to debouncing, to processing and back to idle. In mode
// converge it settles after processing.
const (
	StateIdle       State = "idle"
	StateDebouncing State = "debouncing" // files have changed and have not settled
	// In mode converge, StateProcessing includes queued and waiting runs.
	StateProcessing State = "processing"
	StateSettling   State = "settling" // mode converge: the run has ended, but its effects may still arrive
	StateMissing    State = "missing"  // the folder is missing
)

// Status describes the state of a watch to its owner.
type Status struct {
	Job, Path     string
	Mode          string
	State         State
	Waiting       int       // files that have not settled or wait for their batch
	Round         int       // mode converge: runs since the folder was last idle
	Handover      time.Time // next handover of a collecting watch
	Subscriptions int       // folders with events from the system
	Degraded      string    // reason why the folder is polled; "" if events are reliable
	Problem       string
	LastScan      time.Time
	Waits         []settle.WaitingFile // files that are held back, the longest wait first
}

// Status returns the status of each watch, ordered by job.
func (w *Watcher) Status(ctx context.Context) []Status {
	// A ledger that does not respond must not block the status of the folders.
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()

	running := map[string]bool{}
	runs, err := w.ledger.Runs.Running(ctx)
	for _, r := range runs {
		running[r.Job] = true
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	var out []Status
	for _, job := range slices.Sorted(maps.Keys(w.folders)) {
		st := w.folders[job].currentStatus(running[job])
		if err != nil && st.Problem == "" {
			st.Problem = fmt.Sprintf("what runs is not known: %v", err)
		}
		out = append(out, st)
	}

	return out
}

func (f *folder) currentStatus(running bool) Status {
	f.report.mu.Lock()
	defer f.report.mu.Unlock()

	st := f.report.status
	st.Subscriptions = len(f.w.subs.dirs(f))
	st.Job, st.Path, st.Mode, st.State = f.Job, f.Path, f.Mode, StateIdle
	switch {
	case f.report.missing:
		st.State = StateMissing
	case f.Mode == ModeConverge && f.report.phase != StateIdle:
		st.State = f.report.phase
	case running && f.Mode != ModeConverge:
		st.State = StateProcessing
	case st.Waiting > 0 || f.hints.waiting():
		st.State = StateDebouncing
	}

	st.Waits = slices.SortedFunc(slices.Values(st.Waits), func(a, b settle.WaitingFile) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Path, b.Path))
	})
	switch {
	case st.Problem != "":
	case !f.report.scanning.IsZero() && time.Since(f.report.scanning) > unresponsiveAfter:
		st.Problem = fmt.Sprintf("%s has been read since %s without an end; does its file system answer?", f.Path, f.report.scanning.Format(time.TimeOnly))
	case len(f.report.unreadable) > 0:
		st.Problem = describeFirst(f.report.unreadable, "cannot be read") + "; it is tried again at each scan"
	default:
		st.Problem = f.moves.problem()
	}

	if st.Problem == "" {
		st.Problem = waitProblem(st.Waits, time.Now())
	}
	return st
}

// waitProblem returns a description of files that have waited too long, or "" if there are none.
func waitProblem(waits []settle.WaitingFile, now time.Time) string {
	long := map[string]string{}
	for _, w := range waits {
		if w.Problem(now) {
			long[w.Path] = fmt.Sprintf("%s (since %s)", w.Why, w.Since.Format(time.DateTime))
		}
	}
	if len(long) == 0 {
		return ""
	}
	return describeFirst(long, "is not taken")
}

// describeFirst returns the problem of the first path and the number of further paths.
func describeFirst(paths map[string]string, what string) string {
	path := slices.Min(slices.Collect(maps.Keys(paths)))
	text := fmt.Sprintf("%s %s: %s", path, what, paths[path])
	if more := len(paths) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}
