package watcher

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"rouse/internal/ledger"
	"rouse/watcher/fsys"
	"rouse/watcher/settle"
)

const (
	// minPause is the least time between two passes over the events: a file that is written
	// without a pause must not cost a pass for each of its events.
	minPause = 2 * time.Millisecond
	// maxKnown bounds each half of the files that a scan passes over: some 40 MB in all.
	maxKnown = 1 << 18
)

// eventPath is a path that events named.
type eventPath struct {
	path    string
	created bool // it is new in its folder
}

// folder is a watch at work. What is above mu belongs to its goroutine alone.
type folder struct {
	Watch
	w             *Watcher
	nestedWatches []string      // folders inside it that another job watches
	standalone    bool          // no watcher runs: for the package's Trigger
	scanned       chan struct{} // closed after the first scan
	cancel        context.CancelFunc

	debouncer   *settle.Debouncer
	batch       *batch
	conv        convergence
	linked      linked
	preexisting preexisting
	root        string          // Path with its owner's links resolved; "" while it is missing
	awaited     string          // while it is missing: Path with those of its links resolved that there are
	skippedDirs map[string]bool // folders that are not entered: destinations, nested watches
	stampHasher fsys.Keyer
	known       *fsys.Cache[struct{}]     // files with which nothing is left to do
	hashing     map[string]bool           // large files that are being hashed in the background
	waiting     settle.WaitingFiles       // files that look complete and are not taken yet
	reappeared  map[string]reappearedFile // files that are there again as they were when their runs failed
	partials    settle.PartialNames
	background  sync.WaitGroup
	scanAt      time.Time
	lastPass    time.Time
	runChanged  <-chan struct{} // closed when the ledger has changed since the run of conv was read; nil if it was not read

	mu              sync.Mutex
	eventIndex      map[string]int    // where a path is in events
	events          []eventPath       // since the last pass, each path once
	removed         map[string]bool   // subscribed folders that went away: whether they were renamed
	hashed          []candidate       // large files whose hash has come
	moveErrors      map[string]string // files that could not be moved or deleted, and why
	toRetry         map[string]bool   // those of them that no scan has tried again yet
	moveFailure     string            // why the last move failed, "" when it did not
	scanReason      string            // why a scan was requested, "" when none was
	status          Status
	missing         bool
	inTheWay        string // a link that is not followed, while the folder is missing for it
	phase           State  // of conv
	triggerRequests []chan triggerResult
	ended           bool
	scanning        time.Time // since when; zero when it is not
	unreadable      map[string]string
	notified        chan struct{} // capacity 1

	writing sync.Mutex // held while the state of conv is written
	stopped bool       // it must not be written any more
}

func newFolder(w *Watcher, watch Watch) *folder {
	return &folder{
		Watch: watch, w: w, scanned: make(chan struct{}), debouncer: settle.NewDebouncer(watch.Settle), batch: newBatch(), conv: convergence{phase: StateIdle}, phase: StateIdle, linked: newLinked(),
		stampHasher: fsys.NewKeyer(), known: fsys.NewCache[struct{}](maxKnown), hashing: map[string]bool{}, waiting: settle.NewWaitingFiles(), partials: settle.PartialNames{}, reappeared: map[string]reappearedFile{},
		eventIndex: map[string]int{}, removed: map[string]bool{}, moveErrors: map[string]string{}, toRetry: map[string]bool{}, unreadable: map[string]string{},
		notified: make(chan struct{}, 1),
	}
}

// stop ends the folder. Once it returns, the folder writes no loop state any more.
func (f *folder) stop() {
	if f.cancel != nil {
		f.cancel()
	}

	// A write that is under way may still be committed, so wait for it.
	f.writing.Lock()
	f.stopped = true
	f.writing.Unlock()
}

// run watches the folder until ctx ends.
func (f *folder) run(ctx context.Context) {
	defer f.background.Wait()
	defer func() { f.w.subs.unsubscribe(f, f.w.subs.dirs(f)...) }()

	defer f.refuseTriggers()

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
			f.claimReady(ctx)
			f.enqueueBatch(ctx)
		default:
			f.claimReady(ctx)
		}

		if why := f.nextScanReason(); why != "" {
			f.scan(ctx, why)
		}
		if f.Mode == ModeConverge {
			f.checkRun(ctx)
		}
		f.sleep(ctx)
	}
}

// sleep waits until there is something to do.
func (f *folder) sleep(ctx context.Context) {
	// Status reads the number under the lock; the parts of it belong to this goroutine.
	f.mu.Lock()
	f.status.Waiting = f.debouncer.Len() + len(f.hashing) + len(f.batch.files)
	f.publishWaits()
	f.mu.Unlock()
	at := f.scanAt
	for _, next := range []time.Time{f.debouncer.NextDue(), f.batchDue(), f.convergeDue()} {
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
	case <-f.notified:
	case <-f.runChanged:
		pause = followPause
	}

	// Let more events gather, so that one pass handles all of them.
	timer.Reset(time.Until(f.lastPass.Add(pause)))
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// noteEvent notes the path of an event. The event loop calls it, which must stay quick.
func (f *folder) noteEvent(path string, created bool) {
	f.mu.Lock()
	at, again := f.eventIndex[path]
	if !again {
		at = len(f.events)
		f.eventIndex[path] = at
		f.events = append(f.events, eventPath{path: path})
	}

	f.events[at].created = f.events[at].created || created
	f.mu.Unlock()
	f.notify()
}

// noteRemoved notes that a subscribed folder went away. The event loop calls it.
func (f *folder) noteRemoved(dir string, renamed bool) {
	f.mu.Lock()
	f.removed[dir] = f.removed[dir] || renamed
	f.mu.Unlock()
	f.notify()
}

func (f *folder) notify() {
	select {
	case f.notified <- struct{}{}:
	default:
	}
}

// requestScan asks the folder's goroutine for a scan; the first reason is kept.
func (f *folder) requestScan(why string) {
	f.mu.Lock()
	if f.scanReason == "" {
		f.scanReason = why
	}
	f.mu.Unlock()
	f.notify()
}

// nextScanReason is why a scan is due, "" when none is.
func (f *folder) nextScanReason() string {
	f.mu.Lock()
	defer f.mu.Unlock()

	why := f.scanReason
	f.scanReason = ""
	if now := time.Now(); why == "" && !now.Before(f.scanAt) {
		if f.root != "" && (f.conv.phase == StateProcessing || f.conv.phase == StateSettling) {
			f.scanAt = now.Add(f.w.rescan) // the end of its run brings a scan of its own
			return ""
		}
		why = periodic
	}

	return why
}

// unsubscribeRemoved ends the subscriptions of folders that went away. One that is back
// already may have been subscribed to before the event came, so it is read again.
func (f *folder) unsubscribeRemoved() {
	f.mu.Lock()
	if len(f.removed) == 0 {
		f.mu.Unlock()
		return
	}

	lost := f.removed // now ours alone: the event loop goes on with another map
	f.removed = map[string]bool{}
	f.mu.Unlock()
	renamed := false
	for dir, moved := range lost {
		f.w.subs.unsubscribe(f, dir)
		f.noteEvent(dir, true)
		renamed = renamed || moved
		if dir == f.root {
			f.requestScan("the folder went away")
		}
	}
	if !renamed {
		return
	}

	// The system keeps watching what is in a renamed folder, and reports it by the old path.
	for _, dir := range f.w.subs.dirs(f) {
		for up := filepath.Dir(dir); up != filepath.Dir(up); up = filepath.Dir(up) {
			if lost[up] {
				f.w.subs.unsubscribe(f, dir)
				break
			}
		}
	}

	f.requestScan("a folder was renamed")
}

// handleEvents handles the paths that events named since the last pass.
func (f *folder) handleEvents(ctx context.Context) {
	f.mu.Lock()
	all := f.events
	if len(all) > 0 {
		f.eventIndex, f.events = map[string]int{}, nil
	}

	f.mu.Unlock()
	for _, h := range all {
		if f.root != "" {
			f.handleEvent(ctx, h)
		} else if _, leads := fsys.RelInside(h.path, f.awaited); leads || h.path == f.awaited { // missing: its parents are watched
			f.requestScan("the folder may be back")
		}
	}
}

// handleEvent acts on what is at a path now; what the event said may be outdated.
func (f *folder) handleEvent(ctx context.Context, event eventPath) {
	path, created := event.path, event.created
	rel, ok := fsys.RelInside(f.root, path)
	if !ok {
		return
	}

	// A link changes which files have which names all over the folder: only a scan sorts it out.
	info, err := os.Lstat(path)
	if f.FollowSymlinks && (f.linked.links[path] || err == nil && info.Mode()&fs.ModeSymlink != 0) {
		f.requestScan(linksChanged)
		return
	}

	// A folder that converges is fingerprinted as a whole, so that any file will do.
	if f.Mode == ModeConverge && (err != nil || !info.IsDir()) {
		if f.wants(path, rel) {
			f.noteChange()
		}
		return
	}

	switch {
	case err != nil:
		f.debouncer.Remove(path)
		delete(f.batch.files, path)
		if _, back := f.reappeared[path]; back {
			f.reviewBack(ctx)
		}
	case info.IsDir():
		for _, name := range f.namesOf(path, rel) {
			if f.Recursive && created && f.enters(path, name) && (name == rel || !f.Excludes(rel)) {
				f.descend(ctx, path, name)
				f.noteChange()
			}
		}
	case info.Mode().IsRegular() && f.wants(path, rel):
		how := settle.Changed
		if created {
			how = settle.Arrived
		}
		// A file that was created is new, even where it looks like one that was there before.
		if st := fsys.StampOf(info); !f.batch.has(path, st) && (created || !f.isPreexisting(path, st)) {
			f.debouncer.Observe(path, time.Now(), st, how)
		}
	}
}

// enters says whether the files of a folder belong to the watch.
func (f *folder) enters(path, rel string) bool {
	// Any file name will do here: asked about are the folder and those above it.
	return !f.Prunes(rel) && f.inNoSkippedDir(filepath.Join(path, "x"))
}

// inNoSkippedDir says whether a file is in none of the folders that are skipped.
func (f *folder) inNoSkippedDir(path string) bool {
	if len(f.skippedDirs) == 0 {
		return true
	}

	for dir := filepath.Dir(path); dir != f.root && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if f.skippedDirs[dir] {
			return false
		}
	}
	return true
}

// event records what happened to the watch. The watch goes on when that fails.
func (f *folder) event(ctx context.Context, kind string, run int64, data map[string]any) {
	raw, err := json.Marshal(data)
	if err == nil {
		err = f.w.ledger.Events.Append(ctx, ledger.Event{Job: f.Job, Run: run, Kind: kind, Data: raw})
	}
	if err != nil && ctx.Err() == nil {
		f.w.log.Error("an event could not be recorded", "job", f.Job, "kind", kind, "error", err)
	}
}
