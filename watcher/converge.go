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
	rounds     = 5               // runs of a folder that does not come to rest (OSA-93)
	quietAfter = 2 * time.Second // from the end of a run to the next look (OSA-90)
)

// loop is where a folder that converges stands (OSA-91, OSA-93).
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
type loop struct {
	read    bool              // st is what the ledger holds
	root    string            // of which it is
	st      ledger.WatchState // without its tree
	calm    string            // the fingerprint at which there is nothing to do
	reshape bool              // the watch looks at other files than when it last did
	phase   State
	since   time.Time // when this phase began
	at      time.Time // when to look at the folder; zero: when something happens
	outcome domain.Outcome
	old     bool   // the run had ended before this watcher began: what is different may be anybody's
	before  string // the fingerprint at the last look, where looks are all there is
}

func (l *loop) failed() bool { return l.outcome != "" && !l.outcome.Done() }

// turn goes to another phase.
func (f *folder) turn(phase State, at time.Time) {
	f.loop.phase, f.loop.since, f.loop.at = phase, time.Now(), at
	f.show()
}

// show lets others see the phase.
func (f *folder) show() {
	f.mu.Lock()
	f.phase, f.status.Round = f.loop.phase, f.loop.st.Round
	f.mu.Unlock()
}

// converge goes on with the loop as far as it can now.
func (f *folder) converge(ctx context.Context) {
	l := &f.loop
	if said, news := f.takeWord(); news && l.read && said.run == l.st.Run {
		switch {
		case said.outcome == "" && l.phase != StateProcessing: // somebody has it tried again
			f.turn(StateProcessing, time.Time{})
		case said.outcome != "" && l.phase == StateProcessing:
			l.outcome = said.outcome
			f.turn(StateSettling, time.Now().Add(f.w.quiet))
		}
	}

	for _, ask := range f.takeAsks() {
		accepted, err := f.trigger(ctx)
		ask <- answer{accepted, err}
	}

	if at := f.loopAt(); !at.IsZero() && !time.Now().Before(at) {
		f.scan(ctx, "")
	}
}

// loopAt is when the loop wants to look at the folder; zero when it waits for something else.
func (f *folder) loopAt() time.Time {
	if f.root == "" {
		return time.Time{}
	}
	return f.loop.at
}

// stir notes that something happened in the folder. While its run is on, and until what that
// did has settled, it may have been the run; the fingerprint tells.
func (f *folder) stir() {
	now := time.Now()
	switch f.loop.phase {
	case StateIdle:
		f.turn(StateDebouncing, now.Add(f.Settle))
	case StateDebouncing:
		f.loop.at = now.Add(f.Settle)
		if enough := f.loop.since.Add(f.MaxWait); enough.Before(f.loop.at) {
			f.loop.at = enough
		}
	}
}

// consider decides what a look at the folder means, and says how many files are different
// from what is known.
func (f *folder) consider(ctx context.Context, walk *walk) int {
	n, err := f.decide(ctx, walk)
	if err != nil && ctx.Err() == nil {
		f.w.log.Error("what a folder has become could not be recorded; it is tried again", "job", f.Job, "path", f.Path, "error", err)
		f.loop.read = false // it may have been recorded all the same
		f.loop.at = time.Now().Add(time.Second)
	}
	return n
}

func (f *folder) decide(ctx context.Context, walk *walk) (int, error) {
	l, now := &f.loop, time.Now()
	if !l.read || l.root != f.root {
		if err := f.recall(ctx); err != nil {
			return 0, err
		}
	}

	if l.phase == StateProcessing || l.phase != StateIdle && now.Before(l.at) {
		return 0, nil
	}

	cur := treeOf(f.root, walk.files)
	if walk.torn && f.moves(now, now) {
		return 0, nil
	}
	if l.st.Print == "" && f.Existing == ExistingIgnore {
		return 0, f.baseline(ctx, cur)
	}

	stopped := l.phase == StateSettling && l.failed()
	print := cur.print()
	if print == l.calm && !stopped && !l.reshape && len(walk.unreadable) == 0 {
		return 0, f.rest(ctx)
	}

	mem, err := f.memory(ctx, cur)
	if err != nil {
		return 0, err
	}

	if len(walk.unreadable) > 0 {
		cur = carry(f.root, cur, mem.last, walk.unreadable)
		print = cur.print()
	}
	if print == l.calm && !stopped {
		return 0, f.rest(ctx)
	}

	base := mem.last
	if l.failed() {
		base = mem.base
	}

	changes, n, last := difference(base, cur)
	if stopped && (!l.old || print == l.st.Print) {
		return 0, f.giveUp(ctx, mem, print, n)
	}

	switch {
	case n == 0: // as it was before a run that was not done
		return 0, f.keep(ctx, memory{last: cur, base: cur}, print)
	case f.moves(now, later(time.Unix(0, last), f.lastRemoval(changes))) || f.unsure(now, print, walk):
		return n, nil
	case l.st.Round >= rounds && !l.failed():
		return n, f.adopt(ctx, cur, print, changes, n)
	}

	if again, err := f.triedAgain(ctx); again || err != nil {
		return n, err
	}

	_, err = f.dispatch(ctx, cur, base, changes)
	return n, err
}

// triedAgain says whether somebody has the last run done once more; then that is awaited.
func (f *folder) triedAgain(ctx context.Context) (bool, error) {
	if f.loop.st.Run == 0 {
		return false, nil
	}

	outcome, err := f.w.outcomeOf(ctx, f.loop.st.Run)
	if err != nil || outcome != "" {
		return false, err
	}

	f.turn(StateProcessing, time.Time{})
	f.followRun()
	return true, nil
}

// moves puts a decision off while files change: since the last change a settle window must
// have passed, unless there has been none for long enough.
func (f *folder) moves(now, last time.Time) bool {
	if until := last.Add(f.Settle); !last.After(now) && now.Before(until) {
		return f.putOff(now, until)
	}
	return false
}

// unsure puts a decision off where the clock of the file system may be another: then the folder
// must look the same twice.
func (f *folder) unsure(now time.Time, print string, walk *walk) bool {
	same := print == f.loop.before
	f.loop.before = print
	return walk.degraded != "" && !same && f.putOff(now, now.Add(f.Settle))
}

// putOff looks again later, unless the folder has been waited for long enough.
func (f *folder) putOff(now, until time.Time) bool {
	l := &f.loop
	if l.phase == StateIdle {
		f.turn(StateDebouncing, until)
	}

	enough := l.since.Add(f.MaxWait)
	if !now.Before(enough) {
		return false
	}

	if l.at = until; until.After(enough) {
		l.at = enough
	}

	return true
}

// lastRemoval is when a file was last removed, as far as the folders tell that held them.
func (f *folder) lastRemoval(changes *ledger.Changes) time.Time {
	var last time.Time
	seen := map[string]bool{}
	for _, rel := range changes.Removed {
		for dir := filepath.Dir(joined(f.root, rel)); !seen[dir]; dir = filepath.Dir(dir) {
			seen[dir] = true
			if info, err := os.Lstat(dir); err == nil {
				last = later(last, stampOf(info).arrived())
				break
			}
		}
	}

	return last
}

// carry takes what cannot be read for what it was.
func carry(root string, cur, known tree, unreadable map[string]error) tree {
	var files []sighting
	for _, l := range known {
		path := joined(root, l.path)
		for dir := range unreadable {
			if _, in := inside(dir, path); in || dir == path {
				files = append(files, sighting{path, stamp{size: l.size, modified: l.modified}})
				break
			}
		}
	}

	for _, l := range cur {
		files = append(files, sighting{joined(root, l.path), stamp{size: l.size, modified: l.modified, changed: l.changed}})
	}

	return treeOf(root, files)
}

// recall reads from the ledger where the loop stood.
func (f *folder) recall(ctx context.Context) error {
	st, _, err := f.w.ledger.WatchState(ctx, f.Job)
	if err != nil {
		return err
	}

	l := loop{read: true, root: f.root, phase: StateIdle, calm: st.Print}
	if st.Print != "" {
		mem, err := remember(st.Tree)
		if err != nil || mem.Shape.Root != f.root {
			f.w.log.Info("a folder is looked at anew: what is known is of another", "job", f.Job, "path", f.Path, "error", err)
			st.Print, st.Round = "", 0
		} else if l.reshape = !mem.Shape.equal(f.shape()); mem.Left != "" {
			l.calm = mem.Left
		}
	}

	st.Tree = ""
	l.st = st
	if st.Print == "" {
		l.calm = tree(nil).print()
	} else if st.Run != 0 {
		if l.outcome, err = f.w.outcomeOf(ctx, st.Run); err != nil {
			return err
		}
		if !l.failed() {
			l.calm = st.Print
		}
	}

	f.loop = l
	switch {
	case st.Print == "" || st.Run == 0:
	case l.outcome == "":
		f.turn(StateProcessing, time.Time{})
	case st.Round > 0:
		f.loop.old = true
		f.turn(StateSettling, time.Now().Add(f.w.quiet))
	}

	f.followRun()
	f.show()
	return nil
}

// memory is what the folder looked like, for the watch as it is now.
func (f *folder) memory(ctx context.Context, cur tree) (memory, error) {
	if f.loop.st.Print == "" {
		return memory{}, nil
	}

	st, _, err := f.w.ledger.WatchState(ctx, f.Job)
	if err != nil {
		return memory{}, err
	}

	mem, err := remember(st.Tree)
	if err != nil || !f.loop.reshape {
		return mem, err
	}

	mem.reshape(f, cur)
	f.loop.st.Print = mem.last.print()
	f.loop.calm = f.loop.st.Print
	f.loop.reshape = false

	return mem, f.save(ctx, mem, f.loop.st)
}

// save lets the ledger remember a folder.
func (f *folder) save(ctx context.Context, mem memory, st ledger.WatchState) error {
	mem.Shape = f.shape()
	text, err := mem.text()
	if err != nil {
		return err
	}

	if st.Since.IsZero() {
		st.Since = time.Now()
	}

	st.Tree = text
	return f.write(func() error { return f.w.ledger.SaveWatch(ctx, st) })
}

// write writes unless the folder has been stopped, after which another may have its state.
func (f *folder) write(do func() error) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	if f.stopped {
		return context.Canceled
	}
	return do()
}

// keep takes the folder for known as it is now, and comes to rest.
func (f *folder) keep(ctx context.Context, mem memory, print string) error {
	l := &f.loop
	st := l.st
	st.Print, st.Round = print, 0
	if mem.Left != "" {
		st.Print = l.st.Print // what the run that was not done was told of is still to do
	}

	if st.Since.IsZero() {
		st.Since = time.Now().Truncate(time.Millisecond)
	}
	if err := f.save(ctx, mem, st); err != nil {
		return err
	}

	l.st, l.calm, l.old = st, print, false
	f.turn(StateIdle, time.Time{})
	f.followRun()
	return nil
}

// baseline is the first look at a folder: what is there begins nothing (OSA-92).
func (f *folder) baseline(ctx context.Context, cur tree) error {
	if err := f.keep(ctx, memory{last: cur, base: cur}, cur.print()); err != nil {
		return err
	}
	f.event(ctx, "watch.baseline", 0, map[string]any{"path": f.Path, "files": len(cur)})
	return nil
}

// beginEmpty is the first look at a folder that is not there: what will be in it is new.
func (f *folder) beginEmpty(ctx context.Context) {
	f.root = resolved(f.Path)
	var err error
	if f.Mode != ModeConverge {
		err = f.leaveExisting(ctx, nil)
	} else if !f.loop.read {
		err = f.recall(ctx)
	}

	if err == nil && f.Mode == ModeConverge && f.loop.st.Print == "" && f.Existing == ExistingIgnore {
		err = f.baseline(ctx, nil)
	}
	if err != nil && ctx.Err() == nil {
		f.loop.read = false
		f.w.log.Error("that a folder is not there could not be recorded", "job", f.Job, "path", f.Path, "error", err)
	}
}

// rest ends the loop: the folder is as it is known.
func (f *folder) rest(ctx context.Context) error {
	l := &f.loop
	done, run := l.st.Round, l.st.Run
	if done == 0 {
		f.turn(StateIdle, time.Time{})
		return nil
	}

	mem, err := f.memory(ctx, nil)
	if err != nil {
		return err
	}
	if err := f.keep(ctx, memory{last: mem.last, base: mem.last}, l.st.Print); err != nil {
		return err
	}

	f.event(ctx, "watch.converged", run, map[string]any{"path": f.Path, "runs": done})
	return nil
}

// adopt ends a loop that does not come to rest by itself.
func (f *folder) adopt(ctx context.Context, cur tree, print string, changes *ledger.Changes, n int) error {
	run := f.loop.st.Run
	if err := f.keep(ctx, memory{last: cur, base: cur}, print); err != nil {
		return err
	}

	f.w.log.Warn("a folder still changes after its runs; it is taken as it is", "job", f.Job, "path", f.Path, "runs", rounds, "files", n)
	f.event(ctx, "watch.adopted", run, map[string]any{"path": f.Path, "runs": rounds, "files": n, "changes": changes,
		"reason": fmt.Sprintf("after %d runs the folder still changed; it is taken as it is", rounds)})
	return nil
}

// giveUp ends a loop whose run was not done: it is tried again with the next change, or by hand.
func (f *folder) giveUp(ctx context.Context, mem memory, print string, n int) error {
	run, outcome := f.loop.st.Run, f.loop.outcome
	mem.Left = print
	if err := f.keep(ctx, mem, print); err != nil {
		return err
	}

	f.event(ctx, "watch.stopped", run, map[string]any{"path": f.Path, "run": run, "outcome": outcome, "files": n,
		"reason": "the run was not done; the folder waits for its next change, whose run is told of these too"})
	return nil
}

// dispatch queues a run of the folder. What the folder looks like is known from then on; it
// and the run are one transaction.
func (f *folder) dispatch(ctx context.Context, cur, base tree, changes *ledger.Changes) (ledger.Accepted, error) {
	l := &f.loop
	mem := memory{Shape: f.shape(), last: cur, base: base}
	text, err := mem.text()
	if err != nil {
		return ledger.Accepted{}, err
	}

	st := ledger.WatchState{Job: f.Job, Since: l.st.Since, Print: cur.print(), Tree: text, Round: l.st.Round + 1}
	if l.failed() {
		st.Round = 1
	}

	if st.Since.IsZero() {
		st.Since = time.Now().Truncate(time.Millisecond)
	}

	var accepted []ledger.Accepted
	err = f.write(func() (err error) {
		accepted, err = f.w.ledger.Enqueue(ctx, ledger.Request{
			// After each run there is one next.
			Key: fmt.Sprintf("folder/%s/%d/%d", f.Job, st.Since.UnixMilli(), l.st.Run),
			Job: f.Job, Agent: f.Agent, Trigger: domain.TriggerWatch, Watch: &st,
			Detail: ledger.Detail{Folder: f.root, Changes: changes, Round: st.Round},
		})
		return err
	})
	if err != nil {
		return ledger.Accepted{}, err
	}
	if !accepted[0].New {
		return accepted[0], f.recall(ctx) // it was recorded, and nobody could say so
	}

	st.Run, st.Tree = accepted[0].Run, ""
	f.loop = loop{read: true, root: f.root, st: st, calm: st.Print}
	f.turn(StateProcessing, time.Time{})
	f.followRun()

	return accepted[0], nil
}
