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
	maxRounds        = 5               // runs of a folder that keeps changing (OSA-93)
	defaultRunSettle = 2 * time.Second // from the end of a run to the next scan (OSA-90)
)

// convergence is the state of a folder in mode converge (OSA-91, OSA-93).
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
// All of it is in the ledger: the recorded tree is written in the transaction of the run, so
// a watcher that was stopped between any two of these steps goes on at the next. After a
// failed run the loop ends; the next run is told about the same changes again.
type convergence struct {
	loaded           bool             // state is what the ledger holds
	root             string           // the resolved folder that state is about
	state            claim.WatchState // without its tree
	idlePrint        string           // the fingerprint at which there is nothing to do
	selectionChanged bool             // the watch selects other files than when state was written
	phase            State
	since            time.Time // when this phase began
	checkAt          time.Time // when to scan the folder; zero: wait for an event or the end of a run
	outcome          domain.Outcome
	runPredates      bool   // the run ended before this watcher started: anybody may have made the changes
	previousPrint    string // the fingerprint at the last scan of a polled folder
}

// failed says that the last run is over and did not do its work.
func (l *convergence) failed() bool { return l.outcome != "" && !l.outcome.Done() }

// loop leads a folder in mode converge from one phase to the next.
type loop struct {
	*place
	report     *report
	conv       convergence
	runChanged <-chan struct{} // closed when the ledger has changed since the run of conv was read; nil if it was not read
}

// setPhase enters a phase and says when to scan next.
func (l *loop) setPhase(phase State, at time.Time) {
	l.conv.phase, l.conv.since, l.conv.checkAt = phase, time.Now(), at
	l.publishPhase()
}

// publishPhase copies the phase to where Status reads it, under the lock.
func (l *loop) publishPhase() {
	l.report.mu.Lock()
	l.report.phase, l.report.status.Round = l.conv.phase, l.conv.state.Round
	l.report.mu.Unlock()
}

// follows reports whether the folder waits for the end of its run or, if that has failed, for a retry.
func (l *convergence) follows() bool {
	return l.loaded && l.state.Run != 0 && (l.phase == StateProcessing || l.phase == StateSettling || l.failed())
}

// checkRun reads what has become of the run that the folder follows, if the ledger has changed since it was read.
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

	l.runChanged = l.w.ledger.Changed() // asked for before reading, so that no change falls between
	outcome, err := l.w.outcomeOf(ctx, conv.state.Run)
	switch {
	case err != nil:
		if ctx.Err() == nil {
			l.w.log.Error("the run of a folder could not be read; it is tried again", "job", l.Job, "run", conv.state.Run, "error", err)
		}
		again := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(again) })
		l.runChanged = again
	case outcome == "" && conv.phase != StateProcessing: // somebody retried it
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
		request <- triggerResult{accepted, err} // its capacity is 1, so nobody has to be listening
	}

	if at := f.loop.convergeDue(); !at.IsZero() && !time.Now().Before(at) {
		f.scan(ctx, "")
	}
}

// convergeDue is when the folder has to be scanned next; zero when it waits for something else.
func (l *loop) convergeDue() time.Time {
	// A missing folder waits for an event of its return, not for a time.
	if l.root == "" {
		return time.Time{}
	}
	return l.conv.checkAt
}

// noteChange restarts the debounce window. During a run, and until its effects have settled,
// the change may be the run's own and is left to the fingerprint.
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

// evaluate acts on a scan and says how many files differ from the recorded tree.
func (l *loop) evaluate(ctx context.Context, walk *walk) int {
	n, err := l.decide(ctx, walk)
	if err != nil && ctx.Err() == nil {
		l.w.log.Error("what a folder has become could not be recorded; it is tried again", "job", l.Job, "path", l.Path, "error", err)
		l.conv.loaded = false // the write may have gone through all the same
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

	// A torn scan mixes two states of the folder. After MaxWait it has to do: a folder that
	// never rests would otherwise never get its run.
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

	// Asked again: loadSnapshot fits the recorded tree to a changed watch, and unreadable files
	// count as unchanged.
	if print == conv.idlePrint && !stopped {
		return 0, l.converged(ctx)
	}
	l.hashRewritten(ctx, cur, mem.Last)

	return l.decideChanged(ctx, walk, mem, cur, print, stopped)
}

// decideChanged is decide for a folder that differs from the recorded tree, or (stopped)
// whose run has failed and settled.
func (l *loop) decideChanged(ctx context.Context, walk *walk, mem tree.Snapshot, cur tree.Tree, print string, stopped bool) (int, error) {
	conv, now := &l.conv, time.Now()

	// What a failed run was told about is still to do, so the next one hears of it as well.
	base := mem.Last
	if conv.failed() {
		base = mem.Base
	}

	// Of a run that failed while no watcher was there, changes may have been made by somebody
	// else since: those deserve a run.
	changes, n, last := tree.Changes(base, cur)
	if stopped && (!conv.runPredates || print == conv.state.Fingerprint) {
		return 0, l.giveUp(ctx, mem, print, n)
	}

	switch {
	case n == 0: // written with what was there, or back to what it was before the failed run
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

// retried says whether somebody retried the last run; the folder waits for its end then. The
// ledger may know of it before the watcher was notified.
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
	// A time in the future says nothing about when the change happened, and is not waited for.
	if until := last.Add(l.Settle); !last.After(now) && now.Before(until) {
		return l.postpone(now, until)
	}
	return false
}

// unconfirmed postpones a decision about a polled folder until two scans agree: on a network
// file system another machine's clock sets the times, so they do not tell how old a change is.
func (l *loop) unconfirmed(now time.Time, print string, walk *walk) bool {
	same := print == l.conv.previousPrint
	l.conv.previousPrint = print
	return walk.degraded != "" && !same && l.postpone(now, now.Add(l.Settle))
}

// postpone schedules another scan, unless the folder has been waited for long enough.
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

// lastRemoval is when a file was last removed. A removed file has no time any more, but the
// nearest folder above it that still exists was changed by the removal.
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

// becomeIdle records the folder as it is now, and waits for the next change.
func (l *loop) becomeIdle(ctx context.Context, mem tree.Snapshot, print string) error {
	conv := &l.conv
	st := conv.state
	st.Fingerprint, st.Round = print, 0
	if mem.Left != "" {
		st.Fingerprint = conv.state.Fingerprint // what the failed run was told about is still to do
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

// recordBaseline is for the first scan of a folder: what is there starts no run (OSA-92).
func (l *loop) recordBaseline(ctx context.Context, cur tree.Tree) error {
	if err := l.becomeIdle(ctx, tree.Snapshot{Last: cur, Base: cur}, cur.Fingerprint()); err != nil {
		return err
	}
	l.event(ctx, "watch.baseline", 0, map[string]any{"path": l.Path, "files": len(cur)})
	return nil
}

// startMissing is the first look at a folder that is not there: what will be in it is new.
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

// converged ends the loop: the folder is as recorded.
func (l *loop) converged(ctx context.Context) error {
	// Nothing ran since the last rest, so there is nothing to record either.
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

// rest records the folder as it is now, with nothing to do, and that its loop has ended if one was on.
func (l *loop) rest(ctx context.Context, mem tree.Snapshot, print string) error {
	done, run, failed := l.conv.state.Round, l.conv.state.Run, l.conv.failed()
	if err := l.becomeIdle(ctx, mem, print); err != nil || done == 0 || failed {
		return err
	}

	l.event(ctx, "watch.converged", run, map[string]any{"path": l.Path, "runs": done})
	return nil
}

// adopt ends a loop that does not converge: the folder is recorded as it is, and the owner is told.
func (l *loop) adopt(ctx context.Context, cur tree.Tree, print string, changes *ledger.Changes, n int) error {
	run := l.conv.state.Run
	// First: should the process end in between, it is done again, and an item is made once for a run.
	if err := l.w.ledger.Inbox.AddRunInfo(ctx, run, inbox.Question{
		Call: inbox.CallFolder, Title: fmt.Sprintf("%s stopped: its folder still changes after %d runs", l.Job, maxRounds),
		Message: fmt.Sprintf("%s was different again after the last of %d runs in a row (%s). It is accepted as it is, and the next change starts over. Probably each run writes something else, such as a time: let it write only what is new, or leave its outputs out of the watch with exclude. What each run was told: rouse why %s",
			l.Path, maxRounds, changes.Text(), l.Job),
	}); err != nil && !errors.Is(err, ledger.ErrNotFound) { // by then its history may be too old to be kept
		return err
	}
	if err := l.becomeIdle(ctx, tree.Snapshot{Last: cur, Base: cur}, print); err != nil {
		return err
	}

	l.event(ctx, "watch.adopted", run, map[string]any{"path": l.Path, "runs": maxRounds, "files": n, "changes": changes,
		"reason": fmt.Sprintf("after %d runs the folder still changed; it is accepted as it is", maxRounds)})
	return nil
}

// giveUp ends a loop whose run has failed: the next change, or its owner, starts another.
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
			// The run before identifies its successor: a write that is repeated because its
			// answer was lost queues nothing twice.
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
		return accepted[0], l.loadState(ctx) // recorded by an earlier try whose answer was lost
	}

	st.Run, st.Tree = accepted[0].Run, ""
	l.conv = convergence{loaded: true, root: l.root, state: st, idlePrint: st.Fingerprint}
	l.setPhase(StateProcessing, time.Time{})
	return accepted[0], nil
}
