package watcher

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

const (
	maxRounds        = 5               // runs of a folder that does not come to rest (OSA-93)
	defaultRunSettle = 2 * time.Second // from the end of a run to the next look (OSA-90)
)

// convergence is where a folder that converges stands (OSA-91, OSA-93).
//
//	  ┌────────────────────── the same as known ───────────────────────┐
//	  ▼                                                                │
//	idle ─ change ─► debouncing ─ nothing moves ─► fingerprint ────────┤
//	                                                    ▲              │ different: known now,
//	                                                    │              ▼ and one run of it
//	                   settling ─ two seconds are over ─┘          processing
//	                       ▲                                           │
//	                       └─────────────── the run is over ───────────┘
//
// All of it is in the ledger: what is known is written with the run, so that a watcher which
// was stopped between any two of these steps goes on at the next. After a run that was not
// done the loop ends; what that run was told of is told again to the next.
type convergence struct {
	loaded        bool              // st is what the ledger holds
	root          string            // of which it is
	state         ledger.WatchState // without its tree
	idlePrint     string            // the fingerprint at which there is nothing to do
	shapeChanged  bool              // the watch looks at other files than when it last did
	phase         State
	since         time.Time // when this phase began
	checkAt       time.Time // when to look at the folder; zero: when something happens
	outcome       domain.Outcome
	runPredates   bool   // the run had ended before this watcher began: what is different may be anybody's
	previousPrint string // the fingerprint at the last look, where looks are all there is
}

func (l *convergence) failed() bool { return l.outcome != "" && !l.outcome.Done() }

// setPhase goes to another phase.
func (f *folder) setPhase(phase State, at time.Time) {
	f.conv.phase, f.conv.since, f.conv.checkAt = phase, time.Now(), at
	f.publishPhase()
}

// publishPhase lets others see the phase.
func (f *folder) publishPhase() {
	f.mu.Lock()
	f.phase, f.status.Round = f.conv.phase, f.conv.state.Round
	f.mu.Unlock()
}

// converge goes on with the loop as far as it can now.
func (f *folder) converge(ctx context.Context) {
	l := &f.conv
	if said, news := f.nextRunStatus(); news && l.loaded && said.run == l.state.Run {
		switch {
		case said.outcome == "" && l.phase != StateProcessing: // somebody has it tried again
			f.setPhase(StateProcessing, time.Time{})
		case said.outcome != "" && l.phase == StateProcessing:
			l.outcome = said.outcome
			f.setPhase(StateSettling, time.Now().Add(f.w.runSettle))
		}
	}

	for _, ask := range f.drainTriggers() {
		accepted, err := f.trigger(ctx)
		ask <- triggerResult{accepted, err}
	}

	if at := f.convergeDue(); !at.IsZero() && !time.Now().Before(at) {
		f.scan(ctx, "")
	}
}

// convergeDue is when the loop wants to look at the folder; zero when it waits for something else.
func (f *folder) convergeDue() time.Time {
	if f.root == "" {
		return time.Time{}
	}
	return f.conv.checkAt
}

// noteChange notes that something happened in the folder. While its run is on, and until what that
// did has settled, it may have been the run; the fingerprint tells.
func (f *folder) noteChange() {
	now := time.Now()
	switch f.conv.phase {
	case StateIdle:
		f.setPhase(StateDebouncing, now.Add(f.Settle))
	case StateDebouncing:
		f.conv.checkAt = now.Add(f.Settle)
		if enough := f.conv.since.Add(f.MaxWait); enough.Before(f.conv.checkAt) {
			f.conv.checkAt = enough
		}
	}
}

// evaluate decides what a look at the folder means, and says how many files are different
// from what is known.
func (f *folder) evaluate(ctx context.Context, walk *walk) int {
	n, err := f.decide(ctx, walk)
	if err != nil && ctx.Err() == nil {
		f.w.log.Error("what a folder has become could not be recorded; it is tried again", "job", f.Job, "path", f.Path, "error", err)
		f.conv.loaded = false // it may have been recorded all the same
		f.conv.checkAt = time.Now().Add(time.Second)
	}
	return n
}

func (f *folder) decide(ctx context.Context, walk *walk) (int, error) {
	l, now := &f.conv, time.Now()
	if !l.loaded || l.root != f.root {
		if err := f.loadState(ctx); err != nil {
			return 0, err
		}
	}

	if l.phase == StateProcessing || l.phase != StateIdle && now.Before(l.checkAt) {
		return 0, nil
	}

	cur := newTree(f.root, walk.files)
	if walk.torn && f.stillChanging(now, now) {
		return 0, nil
	}
	if l.state.Print == "" && f.Existing == ExistingIgnore {
		return 0, f.recordBaseline(ctx, cur)
	}

	stopped := l.phase == StateSettling && l.failed()
	print := cur.fingerprint()
	if print == l.idlePrint && !stopped && !l.shapeChanged && len(walk.unreadable) == 0 {
		return 0, f.converged(ctx)
	}

	mem, err := f.loadMemory(ctx, cur)
	if err != nil {
		return 0, err
	}

	if len(walk.unreadable) > 0 {
		cur = keepUnreadable(f.root, cur, mem.last, walk.unreadable)
		print = cur.fingerprint()
	}
	if print == l.idlePrint && !stopped {
		return 0, f.converged(ctx)
	}

	base := mem.last
	if l.failed() {
		base = mem.base
	}

	changes, n, last := changesBetween(base, cur)
	if stopped && (!l.runPredates || print == l.state.Print) {
		return 0, f.giveUp(ctx, mem, print, n)
	}

	switch {
	case n == 0: // as it was before a run that was not done
		return 0, f.becomeIdle(ctx, memory{last: cur, base: cur}, print)
	case f.stillChanging(now, latest(time.Unix(0, last), f.lastRemoval(changes))) || f.unconfirmed(now, print, walk):
		return n, nil
	case l.state.Round >= maxRounds && !l.failed():
		return n, f.adopt(ctx, cur, print, changes, n)
	}

	if again, err := f.retried(ctx); again || err != nil {
		return n, err
	}

	_, err = f.dispatch(ctx, cur, base, changes)
	return n, err
}

// retried says whether somebody has the last run done once more; then that is awaited.
func (f *folder) retried(ctx context.Context) (bool, error) {
	if f.conv.state.Run == 0 {
		return false, nil
	}

	outcome, err := f.w.outcomeOf(ctx, f.conv.state.Run)
	if err != nil || outcome != "" {
		return false, err
	}

	f.setPhase(StateProcessing, time.Time{})
	f.followRun()
	return true, nil
}

// stillChanging puts a decision off while files change: since the last change a settle window must
// have passed, unless there has been none for long enough.
func (f *folder) stillChanging(now, last time.Time) bool {
	if until := last.Add(f.Settle); !last.After(now) && now.Before(until) {
		return f.postpone(now, until)
	}
	return false
}

// unconfirmed puts a decision off where the clock of the file system may be another: then the folder
// must look the same twice.
func (f *folder) unconfirmed(now time.Time, print string, walk *walk) bool {
	same := print == f.conv.previousPrint
	f.conv.previousPrint = print
	return walk.degraded != "" && !same && f.postpone(now, now.Add(f.Settle))
}

// postpone looks again later, unless the folder has been waited for long enough.
func (f *folder) postpone(now, until time.Time) bool {
	l := &f.conv
	if l.phase == StateIdle {
		f.setPhase(StateDebouncing, until)
	}

	enough := l.since.Add(f.MaxWait)
	if !now.Before(enough) {
		return false
	}

	if l.checkAt = until; until.After(enough) {
		l.checkAt = enough
	}

	return true
}

// lastRemoval is when a file was last removed, as far as the folders tell that held them.
func (f *folder) lastRemoval(changes *ledger.Changes) time.Time {
	var last time.Time
	seen := map[string]bool{}
	for _, rel := range changes.Removed {
		for dir := filepath.Dir(joinPath(f.root, rel)); !seen[dir]; dir = filepath.Dir(dir) {
			seen[dir] = true
			if info, err := os.Lstat(dir); err == nil {
				last = latest(last, stampOf(info).arrived())
				break
			}
		}
	}

	return last
}

// keepUnreadable takes what cannot be read for what it was.
func keepUnreadable(root string, cur, known tree, unreadable map[string]error) tree {
	var files []sighting
	for _, l := range known {
		path := joinPath(root, l.path)
		for dir := range unreadable {
			if _, in := relInside(dir, path); in || dir == path {
				files = append(files, sighting{path, stamp{size: l.size, modified: l.modified}})
				break
			}
		}
	}

	for _, l := range cur {
		files = append(files, sighting{joinPath(root, l.path), stamp{size: l.size, modified: l.modified, changed: l.changed}})
	}

	return newTree(root, files)
}

// loadState reads from the ledger where the loop stood.
func (f *folder) loadState(ctx context.Context) error {
	st, _, err := f.w.ledger.WatchState(ctx, f.Job)
	if err != nil {
		return err
	}

	l := convergence{loaded: true, root: f.root, phase: StateIdle, idlePrint: st.Print}
	if st.Print != "" {
		mem, err := decodeMemory(st.Tree)
		if err != nil || mem.Shape.Root != f.root {
			f.w.log.Info("a folder is looked at anew: what is known is of another", "job", f.Job, "path", f.Path, "error", err)
			st.Print, st.Round = "", 0
		} else if l.shapeChanged = !mem.Shape.equal(f.shape()); mem.Left != "" {
			l.idlePrint = mem.Left
		}
	}

	st.Tree = ""
	l.state = st
	if st.Print == "" {
		l.idlePrint = tree(nil).fingerprint()
	} else if st.Run != 0 {
		if l.outcome, err = f.w.outcomeOf(ctx, st.Run); err != nil {
			return err
		}
		if !l.failed() {
			l.idlePrint = st.Print
		}
	}

	f.conv = l
	switch {
	case st.Print == "" || st.Run == 0:
	case l.outcome == "":
		f.setPhase(StateProcessing, time.Time{})
	case st.Round > 0:
		f.conv.runPredates = true
		f.setPhase(StateSettling, time.Now().Add(f.w.runSettle))
	}

	f.followRun()
	f.publishPhase()
	return nil
}

// loadMemory is what the folder looked like, for the watch as it is now.
func (f *folder) loadMemory(ctx context.Context, cur tree) (memory, error) {
	if f.conv.state.Print == "" {
		return memory{}, nil
	}

	st, _, err := f.w.ledger.WatchState(ctx, f.Job)
	if err != nil {
		return memory{}, err
	}

	mem, err := decodeMemory(st.Tree)
	if err != nil || !f.conv.shapeChanged {
		return mem, err
	}

	mem.refit(f, cur)
	f.conv.state.Print = mem.last.fingerprint()
	f.conv.idlePrint = f.conv.state.Print
	f.conv.shapeChanged = false

	return mem, f.saveMemory(ctx, mem, f.conv.state)
}

// saveMemory lets the ledger remember a folder.
func (f *folder) saveMemory(ctx context.Context, mem memory, st ledger.WatchState) error {
	mem.Shape = f.shape()
	text, err := mem.encode()
	if err != nil {
		return err
	}

	if st.Since.IsZero() {
		st.Since = time.Now()
	}

	st.Tree = text
	return f.writeUnlessStopped(func() error { return f.w.ledger.SaveWatch(ctx, st) })
}

// writeUnlessStopped writes unless the folder has been stopped, after which another may have its state.
func (f *folder) writeUnlessStopped(do func() error) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	if f.stopped {
		return context.Canceled
	}
	return do()
}

// becomeIdle takes the folder for known as it is now, and comes to rest.
func (f *folder) becomeIdle(ctx context.Context, mem memory, print string) error {
	l := &f.conv
	st := l.state
	st.Print, st.Round = print, 0
	if mem.Left != "" {
		st.Print = l.state.Print // what the run that was not done was told of is still to do
	}

	if st.Since.IsZero() {
		st.Since = time.Now().Truncate(time.Millisecond)
	}
	if err := f.saveMemory(ctx, mem, st); err != nil {
		return err
	}

	l.state, l.idlePrint, l.runPredates = st, print, false
	f.setPhase(StateIdle, time.Time{})
	f.followRun()
	return nil
}

// recordBaseline is the first look at a folder: what is there begins nothing (OSA-92).
func (f *folder) recordBaseline(ctx context.Context, cur tree) error {
	if err := f.becomeIdle(ctx, memory{last: cur, base: cur}, cur.fingerprint()); err != nil {
		return err
	}
	f.event(ctx, "watch.baseline", 0, map[string]any{"path": f.Path, "files": len(cur)})
	return nil
}

// startMissing is the first look at a folder that is not there: what will be in it is new.
func (f *folder) startMissing(ctx context.Context) {
	f.root = resolveLinks(f.Path)
	var err error
	if f.Mode != ModeConverge {
		err = f.skipPreexisting(ctx, nil)
	} else if !f.conv.loaded {
		err = f.loadState(ctx)
	}

	if err == nil && f.Mode == ModeConverge && f.conv.state.Print == "" && f.Existing == ExistingIgnore {
		err = f.recordBaseline(ctx, nil)
	}
	if err != nil && ctx.Err() == nil {
		f.conv.loaded = false
		f.w.log.Error("that a folder is not there could not be recorded", "job", f.Job, "path", f.Path, "error", err)
	}
}

// converged ends the loop: the folder is as it is known.
func (f *folder) converged(ctx context.Context) error {
	l := &f.conv
	done, run := l.state.Round, l.state.Run
	if done == 0 {
		f.setPhase(StateIdle, time.Time{})
		return nil
	}

	mem, err := f.loadMemory(ctx, nil)
	if err != nil {
		return err
	}
	if err := f.becomeIdle(ctx, memory{last: mem.last, base: mem.last}, l.state.Print); err != nil {
		return err
	}

	f.event(ctx, "watch.converged", run, map[string]any{"path": f.Path, "runs": done})
	return nil
}

// adopt ends a loop that does not come to rest by itself.
func (f *folder) adopt(ctx context.Context, cur tree, print string, changes *ledger.Changes, n int) error {
	run := f.conv.state.Run
	if err := f.becomeIdle(ctx, memory{last: cur, base: cur}, print); err != nil {
		return err
	}

	f.w.log.Warn("a folder still changes after its runs; it is taken as it is", "job", f.Job, "path", f.Path, "runs", maxRounds, "files", n)
	f.event(ctx, "watch.adopted", run, map[string]any{"path": f.Path, "runs": maxRounds, "files": n, "changes": changes,
		"reason": fmt.Sprintf("after %d runs the folder still changed; it is taken as it is", maxRounds)})
	return nil
}

// giveUp ends a loop whose run was not done: it is tried again with the next change, or by hand.
func (f *folder) giveUp(ctx context.Context, mem memory, print string, n int) error {
	run, outcome := f.conv.state.Run, f.conv.outcome
	mem.Left = print
	if err := f.becomeIdle(ctx, mem, print); err != nil {
		return err
	}

	f.event(ctx, "watch.stopped", run, map[string]any{"path": f.Path, "run": run, "outcome": outcome, "files": n,
		"reason": "the run was not done; the folder waits for its next change, whose run is told of these too"})
	return nil
}

// dispatch queues a run of the folder. What the folder looks like is known from then on; it
// and the run are one transaction.
func (f *folder) dispatch(ctx context.Context, cur, base tree, changes *ledger.Changes) (ledger.Accepted, error) {
	l := &f.conv
	mem := memory{Shape: f.shape(), last: cur, base: base}
	text, err := mem.encode()
	if err != nil {
		return ledger.Accepted{}, err
	}

	st := ledger.WatchState{Job: f.Job, Since: l.state.Since, Print: cur.fingerprint(), Tree: text, Round: l.state.Round + 1}
	if l.failed() {
		st.Round = 1
	}

	if st.Since.IsZero() {
		st.Since = time.Now().Truncate(time.Millisecond)
	}

	var accepted []ledger.Accepted
	err = f.writeUnlessStopped(func() (err error) {
		accepted, err = f.w.ledger.Enqueue(ctx, ledger.Request{
			// After each run there is one next.
			Key: fmt.Sprintf("folder/%s/%d/%d", f.Job, st.Since.UnixMilli(), l.state.Run),
			Job: f.Job, Agent: f.Agent, Trigger: domain.TriggerWatch, Watch: &st,
			Detail: ledger.Detail{Folder: f.root, Changes: changes, Round: st.Round},
		})
		return err
	})
	if err != nil {
		return ledger.Accepted{}, err
	}
	if !accepted[0].New {
		return accepted[0], f.loadState(ctx) // it was recorded, and nobody could say so
	}

	st.Run, st.Tree = accepted[0].Run, ""
	f.conv = convergence{loaded: true, root: f.root, state: st, idlePrint: st.Print}
	f.setPhase(StateProcessing, time.Time{})
	f.followRun()

	return accepted[0], nil
}
