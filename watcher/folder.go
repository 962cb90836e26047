package watcher

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"rouse/watcher/fsys"
	"rouse/watcher/settle"
)

const (
	// minPause is the minimum time between two passes over the events. Without it, a file that is
	// written all the time would cost a pass for each of its events.
	minPause = 2 * time.Millisecond
)

// folder is an active watch: a goroutine and the parts that it connects. Each part has its own lock
// for the fields that other goroutines use. All other fields belong to the goroutine alone.
type folder struct {
	*place
	hints    *hints
	report   *report
	files    *candidates
	loop     *loop
	moves    *failedMoves
	triggers *triggerQueue

	standalone bool          // no watcher is running (see the function Trigger)
	scanned    chan struct{} // closed after the first scan
	cancel     context.CancelFunc
	scanAt     time.Time
	lastPass   time.Time
}

func newFolder(w *Watcher, watch Watch) *folder {
	p := &place{Watch: watch, w: w, linked: newLinked(), partials: settle.PartialNames{}}
	h := &hints{eventIndex: map[string]int{}, removed: map[string]bool{}, notified: make(chan struct{}, 1)}
	r := &report{place: p, phase: StateIdle, unreadable: map[string]string{}}
	return &folder{
		place: p, hints: h, report: r, files: newCandidates(p, h, r),
		loop:     &loop{place: p, report: r, conv: convergence{phase: StateIdle}},
		moves:    &failedMoves{hints: h, moveErrors: map[string]string{}, toRetry: map[string]bool{}},
		triggers: &triggerQueue{place: p, hints: h},
		scanned:  make(chan struct{}),
	}
}

// stop ends the folder. After it returns, the folder no longer writes its state.
func (f *folder) stop() {
	if f.cancel != nil {
		f.cancel()
	}

	// A write in progress may still be committed, so wait for it.
	f.writing.Lock()
	f.stopped = true
	f.writing.Unlock()
}

// run watches the folder until ctx ends.
func (f *folder) run(ctx context.Context) {
	defer f.files.background.Wait()
	defer func() { f.w.subs.unsubscribe(f, f.w.subs.dirs(f)...) }()

	defer f.triggers.refuse()

	f.scan(ctx, "start")
	close(f.scanned)

	for ctx.Err() == nil {
		f.lastPass = time.Now()
		f.unsubscribeRemoved()
		f.handleEvents(ctx)

		switch f.Mode {
		case ModeConverge:
			f.converge(ctx)
		case ModeBatch:
			f.files.claimReady(ctx)
			f.files.enqueueBatch(ctx)
		default:
			f.files.claimReady(ctx)
		}

		if why := f.nextScanReason(); why != "" {
			f.scan(ctx, why)
		}
		if f.Mode == ModeConverge {
			f.loop.checkRun(ctx)
		}
		f.sleep(ctx)
	}
}

// sleep waits until there is something to do.
func (f *folder) sleep(ctx context.Context) {
	// Status reads the number under the lock. Its parts belong to this goroutine.
	f.report.mu.Lock()
	f.report.status.Waiting = f.files.debouncer.Len() + len(f.files.hashing) + len(f.files.batch.files)
	f.files.publishWaits()
	f.report.mu.Unlock()
	at := f.scanAt
	for _, next := range []time.Time{f.files.debouncer.NextDue(), f.files.batchDue(), f.loop.convergeDue()} {
		if !next.IsZero() && next.Before(at) {
			at = next
		}
	}

	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()

	pause := minPause
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
		return
	case <-f.hints.notified:
	case <-f.loop.runChanged:
		pause = followPause
	}

	// Wait for more events, so that one pass handles all of them.
	timer.Reset(time.Until(f.lastPass.Add(pause)))
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// nextScanReason returns the reason for a scan that is due, or "" if none is.
func (f *folder) nextScanReason() string {
	why := f.hints.takeScanReason()
	if now := time.Now(); why == "" && !now.Before(f.scanAt) {
		if f.root != "" && (f.loop.conv.phase == StateProcessing || f.loop.conv.phase == StateSettling) {
			f.scanAt = now.Add(f.w.rescan) // the end of the run starts a scan
			return ""
		}
		why = periodic
	}

	return why
}

// unsubscribeRemoved ends the subscriptions of folders that were removed. A folder that has already
// returned may have been subscribed to before the event arrived, so it is read again.
func (f *folder) unsubscribeRemoved() {
	lost := f.hints.takeRemoved()
	if len(lost) == 0 {
		return
	}

	renamed := false
	for dir, moved := range lost {
		f.w.subs.unsubscribe(f, dir)
		f.hints.noteEvent(dir, true)
		renamed = renamed || moved
		if dir == f.root {
			f.hints.requestScan("the folder went away")
		}
	}
	if !renamed {
		return
	}

	// The system keeps watching the contents of a renamed folder, and reports them with the old
	// path.
	for _, dir := range f.w.subs.dirs(f) {
		for up := filepath.Dir(dir); up != filepath.Dir(up); up = filepath.Dir(up) {
			if lost[up] {
				f.w.subs.unsubscribe(f, dir)
				break
			}
		}
	}

	f.hints.requestScan("a folder was renamed")
}

// handleEvents handles the paths of the events since the last pass.
func (f *folder) handleEvents(ctx context.Context) {
	for _, h := range f.hints.takeEvents() {
		if f.root != "" {
			f.handleEvent(ctx, h)
		} else if _, leads := fsys.RelInside(h.path, f.awaited); leads || h.path == f.awaited { // missing: its parents are watched
			f.hints.requestScan("the folder may be back")
		}
	}
}

// handleEvent handles the current state of a path, because the event may be outdated.
func (f *folder) handleEvent(ctx context.Context, event eventPath) {
	path, created := event.path, event.created
	rel, ok := fsys.RelInside(f.root, path)
	if !ok {
		return
	}

	// A link can change the names of files anywhere in the folder. Only a scan can find them.
	info, err := os.Lstat(path)
	if f.FollowSymlinks && (f.linked.links[path] || err == nil && info.Mode()&fs.ModeSymlink != 0) {
		f.hints.requestScan(linksChanged)
		return
	}

	// A folder in mode converge has one fingerprint, so a change of any file counts.
	if f.Mode == ModeConverge && (err != nil || !info.IsDir()) {
		if f.wants(path, rel) {
			f.loop.noteChange()
		}
		return
	}

	switch {
	case err != nil:
		f.files.debouncer.Remove(path)
		delete(f.files.batch.files, path)
		if _, back := f.files.reappeared[path]; back {
			f.files.reviewBack(ctx)
		}
	case info.IsDir():
		for _, name := range f.namesOf(path, rel) {
			if f.Recursive && created && f.enters(path, name) && (name == rel || !f.Excludes(rel)) {
				f.descend(ctx, path, name)
				f.loop.noteChange()
			}
		}
	case info.Mode().IsRegular() && f.wants(path, rel):
		how := settle.Changed
		if created {
			how = settle.Arrived
		}
		// A file that was just created is new, even if it looks like a preexisting one.
		if st := fsys.StampOf(info); !f.files.batch.has(path, st) && (created || !f.files.isPreexisting(path, st)) {
			f.files.debouncer.Observe(path, time.Now(), st, how)
		}
	}
}
