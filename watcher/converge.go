package watcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/claim"
	"rouse/internal/ledger/inbox"
	"rouse/watcher/fsys"
	"rouse/watcher/tree"
)

const (
	maxRounds        = 5               // maximum runs in a row for a folder that keeps changing
	defaultRunSettle = 2 * time.Second // time from the end of a run to the next scan
)

// convergence is the state of a folder in mode converge.
//
//	  ┌─────────────────── fingerprint as recorded ────────────────────┐
//	  ▼                                                                │
//	idle ─ change ─► debouncing ─ no more changes ► fingerprint ───────┤
//	                                                    ▲              │ different: record it
//	                                                    │              ▼ and queue one run
//	                   settling ─ two seconds are over ─┘          processing
//	                       ▲                                           │
//	                       └─────────────── the run is over ───────────┘
//
// The whole state is in the ledger. The recorded tree is written in the transaction of the run, so
// a watcher that was stopped between two steps continues at the next one. A failed run ends the
// loop, and the next run receives the same changes again.
type convergence struct {
	loaded           bool             // whether state has been read from the ledger
	root             string           // resolved folder of state
	state            claim.WatchState // state without its tree
	idlePrint        string           // fingerprint at which no run is needed
	selectionChanged bool             // whether the watch selects other files than when state was written
	phase            State
	since            time.Time // time at which this phase began
	// checkAt is the time of the next scan. If zero, the folder waits for an event or the end of a
	// run.
	checkAt time.Time
	outcome domain.Outcome
	// runPredates is set if the run ended before this watcher started. Others may have made changes
	// since then.
	runPredates   bool
	previousPrint string // fingerprint of the last scan of a polled folder
}

// failed reports whether the last run has ended without success.
func (l *convergence) failed() bool { return l.outcome != "" && !l.outcome.Done() }

// loop takes a folder in mode converge from one phase to the next.
type loop struct {
	*place
	report *report
	conv   convergence
	// runChanged is closed when the ledger has changed since the run of conv was read. It is nil if
	// the run was not read.
	runChanged <-chan struct{}
}

// setPhase enters a phase and sets the time of the next scan.
func (l *loop) setPhase(phase State, at time.Time) {
	l.conv.phase, l.conv.since, l.conv.checkAt = phase, time.Now(), at
	l.publishPhase()
}

// publishPhase copies the phase into the report, from which Status reads it.
func (l *loop) publishPhase() {
	l.report.mu.Lock()
	l.report.phase, l.report.status.Round = l.conv.phase, l.conv.state.Round
	l.report.mu.Unlock()
}

// follows reports whether the folder waits for the end of its run or, if the run has failed, for a
// retry.
func (l *convergence) follows() bool {
	return l.loaded && l.state.Run != 0 && (l.phase == StateProcessing || l.phase == StateSettling || l.failed())
}

// checkRun reads the state of the run that the folder follows, if the ledger has changed since the
// last read.
func (l *loop) checkRun(ctx context.Context) {
	conv := &l.conv
	if !conv.follows() {
		l.runChanged = nil
		return
	}
	if l.runChanged != nil {
		select {
		case <-l.runChanged:
		default:
			return
		}
	}

	l.runChanged = l.w.ledger.Changed() // get the channel before reading, so that no change is missed
	outcome, err := l.w.outcomeOf(ctx, conv.state.Run)
	switch {
	case err != nil:
		if ctx.Err() == nil {
			l.w.log.Error("the run of a folder could not be read; it is tried again", "job", l.Job, "run", conv.state.Run, "error", err)
		}
		again := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(again) })
		l.runChanged = again
	case outcome == "" && conv.phase != StateProcessing: // the run is being retried
		l.setPhase(StateProcessing, time.Time{})
	case outcome != "" && conv.phase == StateProcessing:
		conv.outcome = outcome
		l.setPhase(StateSettling, time.Now().Add(l.w.runSettle))
	}
}

// converge advances the state machine as far as it can go now.
func (f *folder) converge(ctx context.Context) {
	for _, request := range f.triggers.drain() {
		accepted, err := f.trigger(ctx)
		request <- triggerResult{accepted, err} // capacity 1: does not block without a receiver
	}

	if at := f.loop.convergeDue(); !at.IsZero() && !time.Now().Before(at) {
		f.scan(ctx, "")
	}
}

// convergeDue returns the time of the next scan. It is zero if the folder waits for something else.
func (l *loop) convergeDue() time.Time {
	// A missing folder waits for the event of its return.
	if l.root == "" {
		return time.Time{}
	}
	return l.conv.checkAt
}

// noteChange restarts the debounce window. A change during a run, or before its effects have
// settled, may be the run's own. The fingerprint decides about such a change.
func (l *loop) noteChange() {
	now := time.Now()
	switch l.conv.phase {
	case StateIdle:
		l.setPhase(StateDebouncing, now.Add(l.Settle))
	case StateDebouncing:
		l.conv.checkAt = now.Add(l.Settle)
		if enough := l.conv.since.Add(l.MaxWait); enough.Before(l.conv.checkAt) {
			l.conv.checkAt = enough
		}
	}
}

// evaluate acts on a scan and returns the number of files that differ from the recorded tree.
func (l *loop) evaluate(ctx context.Context, walk *walk) int {
	n, err := l.decide(ctx, walk)
	if err != nil && ctx.Err() == nil {
		l.w.log.Error("what a folder has become could not be recorded; it is tried again", "job", l.Job, "path", l.Path, "error", err)
		l.conv.loaded = false // the write may have succeeded despite the error
		l.conv.checkAt = time.Now().Add(time.Second)
	}
	return n
}

// decide compares a scan with the recorded tree and takes the next step of the state machine.
func (l *loop) decide(ctx context.Context, walk *walk) (int, error) {
	conv, now := &l.conv, time.Now()
	if !conv.loaded || conv.root != l.root {
		if err := l.loadState(ctx); err != nil {
			return 0, err
		}
	}

	if conv.phase == StateProcessing || conv.phase != StateIdle && now.Before(conv.checkAt) {
		return 0, nil
	}

	// A torn scan mixes two states of the folder. After MaxWait it is used anyway: otherwise a
	// folder that changes all the time would never get a run.
	cur := tree.New(l.root, walk.files)
	if walk.torn && l.stillChanging(now, now) {
		return 0, nil
	}
	if conv.state.Fingerprint == "" && l.Existing == ExistingIgnore {
		return 0, l.recordBaseline(ctx, cur)
	}

	// Most scans end here, without reading the recorded tree from the ledger.
	stopped := conv.phase == StateSettling && conv.failed()
	print := cur.Fingerprint()
	if print == conv.idlePrint && !stopped && !conv.selectionChanged && len(walk.unreadable) == 0 {
		return 0, l.converged(ctx)
	}

	mem, err := l.loadSnapshot(ctx, cur)
	if err != nil {
		return 0, err
	}

	if len(walk.unreadable) > 0 {
		cur = tree.KeepUnreadable(l.root, cur, mem.Last, walk.unreadable)
		print = cur.Fingerprint()
	}

	// Compare again: loadSnapshot adapts the recorded tree to a changed watch, and unreadable files
	// count as unchanged.
	if print == conv.idlePrint && !stopped {
		return 0, l.converged(ctx)
	}
	l.hashRewritten(ctx, cur, mem.Last)

	return l.decideChanged(ctx, walk, mem, cur, print, stopped)
}

// decideChanged continues decide for a folder that differs from the recorded tree. stopped means
// that its run has failed and the folder has settled.
func (l *loop) decideChanged(ctx context.Context, walk *walk, mem tree.Snapshot, cur tree.Tree, print string, stopped bool) (int, error) {
	conv, now := &l.conv, time.Now()

	// The changes of a failed run are still to be processed, so the next run receives them as well.
	base := mem.Last
	if conv.failed() {
		base = mem.Base
	}

	// If a run failed while no watcher was running, others may have made changes since then. Those
	// changes need a run.
	changes, n, last := tree.Changes(base, cur)
	if stopped && (!conv.runPredates || print == conv.state.Fingerprint) {
		return 0, l.giveUp(ctx, mem, print, n)
	}

	switch {
	case n == 0: // rewritten with the same contents, or back to the state before the failed run
		return 0, l.rest(ctx, tree.Snapshot{Last: cur, Base: cur}, print)
	case l.stillChanging(now, latest(time.Unix(0, last), l.lastRemoval(changes))) || l.unconfirmed(now, print, walk):
		return n, nil
	case conv.state.Round >= maxRounds && !conv.failed():
		return n, l.adopt(ctx, cur, print, changes, n)
	}

	if again, err := l.retried(ctx); again || err != nil {
		return n, err
	}
	if held := l.unreadyChange(changes.Added, changes.Modified); held != nil && l.postpone(now, now.Add(l.Settle)) {
		l.w.log.Debug("a folder waits for one of its files", "job", l.Job, "reason", held)
		return n, nil
	}

	_, err := l.dispatch(ctx, cur, base, changes)
	return n, err
}

// retried reports whether the last run is being retried. The folder then waits for its end. The
// ledger may know of the retry before the watcher is notified.
func (l *loop) retried(ctx context.Context) (bool, error) {
	if l.conv.state.Run == 0 {
		return false, nil
	}

	outcome, err := l.w.outcomeOf(ctx, l.conv.state.Run)
	if err != nil || outcome != "" {
		return false, err
	}

	l.setPhase(StateProcessing, time.Time{})
	return true, nil
}

// stillChanging postpones a decision until a settle window has passed since the last change,
// but not beyond MaxWait.
func (l *loop) stillChanging(now, last time.Time) bool {
	// A time in the future does not tell when the change happened.
	if until := last.Add(l.Settle); !last.After(now) && now.Before(until) {
		return l.postpone(now, until)
	}
	return false
}

// unconfirmed postpones a decision about a polled folder until two scans agree. On a network file
// system another machine's clock sets the times, so they do not tell the age of a change.
func (l *loop) unconfirmed(now time.Time, print string, walk *walk) bool {
	same := print == l.conv.previousPrint
	l.conv.previousPrint = print
	return walk.degraded != "" && !same && l.postpone(now, now.Add(l.Settle))
}

// postpone schedules another scan and returns true, unless the folder has waited for MaxWait.
func (l *loop) postpone(now, until time.Time) bool {
	conv := &l.conv
	if conv.phase == StateIdle {
		l.setPhase(StateDebouncing, until)
	}

	enough := conv.since.Add(l.MaxWait)
	if !now.Before(enough) {
		return false
	}

	if conv.checkAt = until; until.After(enough) {
		conv.checkAt = enough
	}

	return true
}

// lastRemoval returns the time at which a file was last removed. A removed file has no time, but
// its removal changed the nearest parent folder that still exists.
func (l *loop) lastRemoval(changes *ledger.Changes) time.Time {
	var last time.Time
	seen := map[string]bool{}
	for _, rel := range changes.Removed {
		for dir := filepath.Dir(fsys.JoinPath(l.root, rel)); !seen[dir]; dir = filepath.Dir(dir) {
			seen[dir] = true
			if info, err := os.Lstat(dir); err == nil {
				last = latest(last, fsys.StampOf(info).Arrived())
				break
			}
		}
	}

	return last
}

// becomeIdle records the folder's current state and waits for the next change.
func (l *loop) becomeIdle(ctx context.Context, mem tree.Snapshot, print string) error {
	conv := &l.conv
	st := conv.state
	st.Fingerprint, st.Round = print, 0
	if mem.Left != "" {
		st.Fingerprint = conv.state.Fingerprint // the changes of the failed run are still to be processed
	}

	if st.Since.IsZero() {
		st.Since = time.Now().Truncate(time.Millisecond)
	}
	if err := l.saveSnapshot(ctx, mem, st); err != nil {
		return err
	}

	conv.state, conv.idlePrint, conv.runPredates = st, print, false
	l.setPhase(StateIdle, time.Time{})
	return nil
}

// recordBaseline records the files of the first scan. They start no run.
func (l *loop) recordBaseline(ctx context.Context, cur tree.Tree) error {
	if err := l.becomeIdle(ctx, tree.Snapshot{Last: cur, Base: cur}, cur.Fingerprint()); err != nil {
		return err
	}
	l.event(ctx, "watch.baseline", 0, map[string]any{"path": l.Path, "files": len(cur)})
	return nil
}

// startMissing handles the first scan of a missing folder. All files that appear in it later are
// new.
func (f *folder) startMissing(ctx context.Context) {
	f.root = f.resolveLinks(f.Path)
	var err error
	if f.Mode != ModeConverge {
		err = f.files.skipPreexisting(ctx, nil)
	} else if !f.loop.conv.loaded {
		err = f.loop.loadState(ctx)
	}

	if err == nil && f.Mode == ModeConverge && f.loop.conv.state.Fingerprint == "" && f.Existing == ExistingIgnore {
		err = f.loop.recordBaseline(ctx, nil)
	}
	if err != nil && ctx.Err() == nil {
		f.loop.conv.loaded = false
		f.w.log.Error("that a folder is not there could not be recorded", "job", f.Job, "path", f.Path, "error", err)
	}
}

// converged ends the loop because the folder matches the recorded tree.
func (l *loop) converged(ctx context.Context) error {
	// No run was started since the folder was last idle, so its state has not changed.
	if l.conv.state.Round == 0 {
		l.setPhase(StateIdle, time.Time{})
		return nil
	}

	mem, err := l.loadSnapshot(ctx, nil)
	if err != nil {
		return err
	}
	return l.rest(ctx, tree.Snapshot{Last: mem.Last, Base: mem.Last}, l.conv.state.Fingerprint)
}

// rest records the folder's current state, and the end of its loop if one was running.
func (l *loop) rest(ctx context.Context, mem tree.Snapshot, print string) error {
	done, run, failed := l.conv.state.Round, l.conv.state.Run, l.conv.failed()
	if err := l.becomeIdle(ctx, mem, print); err != nil || done == 0 || failed {
		return err
	}

	l.event(ctx, "watch.converged", run, map[string]any{"path": l.Path, "runs": done})
	return nil
}

// adopt ends a loop that does not converge. It accepts the folder as it is and notifies the owner.
func (l *loop) adopt(ctx context.Context, cur tree.Tree, print string, changes *ledger.Changes, n int) error {
	run := l.conv.state.Run
	// Add the inbox item first. If the process ends here, this is repeated, and each run gets only
	// one item.
	if err := l.w.ledger.Inbox.AddRunInfo(ctx, run, inbox.Question{
		Call: inbox.CallFolder, Title: fmt.Sprintf("%s stopped: its folder still changes after %d runs", l.Job, maxRounds),
		Message: fmt.Sprintf("%s was different again after the last of %d runs in a row (%s). It is accepted as it is, and the next change starts over. Probably each run writes something else, such as a time: let it write only what is new, or leave its outputs out of the watch with exclude. What each run was told: rouse why %s",
			l.Path, maxRounds, changes.Text(), l.Job),
	}); err != nil && !errors.Is(err, ledger.ErrNotFound) { // its history may already have been pruned
		return err
	}
	if err := l.becomeIdle(ctx, tree.Snapshot{Last: cur, Base: cur}, print); err != nil {
		return err
	}

	l.event(ctx, "watch.adopted", run, map[string]any{"path": l.Path, "runs": maxRounds, "files": n, "changes": changes,
		"reason": fmt.Sprintf("after %d runs the folder still changed; it is accepted as it is", maxRounds)})
	return nil
}

// giveUp ends a loop after its run has failed. The next change or a retry starts another run.
func (l *loop) giveUp(ctx context.Context, mem tree.Snapshot, print string, n int) error {
	run, outcome := l.conv.state.Run, l.conv.outcome
	mem.Left = print
	if err := l.becomeIdle(ctx, mem, print); err != nil {
		return err
	}

	l.event(ctx, "watch.stopped", run, map[string]any{"path": l.Path, "run": run, "outcome": outcome, "files": n,
		"reason": "the run failed; the folder waits for its next change, whose run is told about these changes too"})
	return nil
}

// dispatch queues a run of the folder. The tree and the run are recorded in one transaction.
func (l *loop) dispatch(ctx context.Context, cur, base tree.Tree, changes *ledger.Changes) (ledger.Accepted, error) {
	conv := &l.conv
	l.learnContents(ctx, cur)
	mem := tree.Snapshot{Shape: l.selection(), Last: cur, Base: base}
	text, err := mem.Encode()
	if err != nil {
		return ledger.Accepted{}, err
	}

	st := claim.WatchState{Job: l.Job, Since: conv.state.Since, Fingerprint: cur.Fingerprint(), Tree: text, Round: conv.state.Round + 1}
	if conv.failed() {
		st.Round = 1 // a failed run has ended its loop
	}

	if st.Since.IsZero() {
		st.Since = time.Now().Truncate(time.Millisecond)
	}

	var accepted []ledger.Accepted
	err = l.writeUnlessStopped(func() (err error) {
		accepted, err = l.w.ledger.Enqueue(ctx, ledger.Request{
			// The key contains the previous run. If the write is repeated because its response was
			// lost, it does not queue a second run.
			Key: fmt.Sprintf("folder/%s/%d/%d", l.Job, st.Since.UnixMilli(), conv.state.Run),
			Job: l.Job, Agent: l.Agent, Trigger: domain.TriggerWatch, Watch: &st,
			Detail: ledger.TriggerDetail{Folder: l.root, Changes: changes, Round: st.Round},
		})
		return err
	})
	if err != nil {
		return ledger.Accepted{}, err
	}
	if !accepted[0].New {
		return accepted[0], l.loadState(ctx) // recorded by an earlier try, but the response was lost
	}

	st.Run, st.Tree = accepted[0].Run, ""
	l.conv = convergence{loaded: true, root: l.root, state: st, idlePrint: st.Fingerprint}
	l.setPhase(StateProcessing, time.Time{})
	return accepted[0], nil
}
