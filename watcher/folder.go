package watcher

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"rouse/agentdb/ledger"
)

const (
	// minPause is the least time between two looks at what was heard: a file that is written
	// without a pause must not cost a look for each of its events.
	minPause = 2 * time.Millisecond
	// maxKnown bounds each half of the files that a scan passes over: some 40 MB in all.
	maxKnown = 1 << 18
)

// eventPath is a path that an event named.
type eventPath struct {
	path    string
	created bool // it is new in its folder
}

// folder is a watch at work. What is above mu belongs to its goroutine.
type folder struct {
	Watch
	w             *Watcher
	nestedWatches []string      // folders inside it that are another watch's
	standalone    bool          // no watcher runs
	scanned       chan struct{} // closed after the first scan
	cancel        context.CancelFunc

	debouncer   *debouncer
	batch       *batch
	conv        convergence
	linked      linked
	preexisting preexisting
	root        string          // Path with its links resolved; "" while it is missing
	skippedDirs map[string]bool // folders that are not entered: destinations and other watches'
	stampHasher stampHasher
	known       *recent[struct{}] // files with which nothing is to be done
	hashing     map[string]bool   // files that are being hashed beside
	background  sync.WaitGroup
	scanAt      time.Time
	lastPass    time.Time

	mu              sync.Mutex
	eventIndex      map[string]int // paths of events, by their place in events
	events          []eventPath
	removed         map[string]bool   // armed folders that went away: whether they were renamed
	hashed          []candidate       // long files, done
	moveErrors      map[string]string // files that could not be moved away, and why
	toRetry         map[string]bool   // those of them that no scan has tried again yet
	moveFailing     bool              // the last move failed
	scanReason      string            // why a scan is wanted, "" when none is
	status          Status
	missing         bool
	phase           State     // of the loop
	runStatus       runStatus // about its run
	runStatusNew    bool
	triggerRequests []chan triggerResult
	ended           bool
	scanning        time.Time // since when; zero when it is not
	unreadable      map[string]string
	notified        chan struct{} // capacity 1

	writing sync.Mutex // held while the state of the loop is written
	stopped bool       // nothing is any more
}

func newFolder(w *Watcher, watch Watch) *folder {
	return &folder{
		Watch: watch, w: w, scanned: make(chan struct{}), debouncer: newDebouncer(watch.Settle), batch: newBatch(), conv: convergence{phase: StateIdle}, phase: StateIdle, linked: newLinked(),
		stampHasher: newStampHasher(), known: newRecent[struct{}](maxKnown), hashing: map[string]bool{},
		eventIndex: map[string]int{}, removed: map[string]bool{}, moveErrors: map[string]string{}, toRetry: map[string]bool{}, unreadable: map[string]string{},
		notified: make(chan struct{}, 1),
	}
}

// unchanged says whether another folder can go on in place of this one.
func (f *folder) unchanged(old *folder) bool {
	if !f.equal(&old.Watch) || len(f.nestedWatches) != len(old.nestedWatches) {
		return false
	}

	for i, dir := range f.nestedWatches {
		if old.nestedWatches[i] != dir {
			return false
		}
	}
	return true
}

// stop ends the folder; nothing is written of its loop any more once it returns.
func (f *folder) stop() {
	if f.cancel != nil {
		f.cancel()
	}
	f.writing.Lock()
	f.stopped = true
	f.writing.Unlock()
}

// run watches the folder until ctx ends.
func (f *folder) run(ctx context.Context) {
	defer f.background.Wait()
	defer func() { f.w.subs.unsubscribe(f, f.w.subs.dirs(f)...) }()

	defer f.w.unfollow(f)

	defer f.refuseTriggers()

	f.scan(ctx, "start")
	close(f.scanned)

	for ctx.Err() == nil {
		f.lastPass = time.Now()
		f.unsubscribeRemoved()
		f.handleEvents(ctx)

		if f.Mode == ModeConverge {
			f.converge(ctx)
		} else {
			f.claimReady(ctx)
			f.enqueueBatch(ctx)
		}

		if why := f.nextScanReason(); why != "" {
			f.scan(ctx, why)
		}

		f.sleep(ctx)
	}
}

// sleep waits until there is something to do.
func (f *folder) sleep(ctx context.Context) {
	f.mu.Lock()
	f.status.Waiting = f.debouncer.len() + len(f.hashing) + f.batch.len()
	f.mu.Unlock()
	at := f.scanAt
	for _, next := range []time.Time{f.debouncer.nextDue(), f.batchDue(), f.convergeDue()} {
		if !next.IsZero() && next.Before(at) {
			at = next
		}
	}

	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return
	case <-timer.C:
		return
	case <-f.notified:
	}

	timer.Reset(time.Until(f.lastPass.Add(minPause)))
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// noteEvent notes the path of an event. The event loop calls it: it must not do more.
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

// noteRemoved notes that an armed folder went away. The event loop calls it.
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

// requestScan wants a scan; the first reason is kept.
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
			f.scanAt = now.Add(f.w.rescan) // it is looked at when its run is over
			return ""
		}
		why = periodic
	}

	return why
}

// unsubscribeRemoved lets go of folders that went away. One that is back already may have been armed before
// that was heard of, so it is looked at again.
func (f *folder) unsubscribeRemoved() {
	f.mu.Lock()
	if len(f.removed) == 0 {
		f.mu.Unlock()
		return
	}

	lost := f.removed // now ours alone: the event loop goes on with another
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

	// The system goes on to watch what is in a renamed folder, under its old name.
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

// handleEvents looks at the paths that events named.
func (f *folder) handleEvents(ctx context.Context) {
	f.mu.Lock()
	all := f.events
	if len(all) > 0 {
		f.eventIndex, f.events = map[string]int{}, nil
	}

	f.mu.Unlock()
	for _, h := range all {
		if f.root != "" {
			f.handleEvent(ctx, h.path, h.created)
		} else if _, leads := relInside(h.path, f.Path); leads || h.path == f.Path {
			f.requestScan("the folder may be back")
		}
	}
}

func (f *folder) handleEvent(ctx context.Context, path string, created bool) {
	rel, ok := relInside(f.root, path)
	if !ok {
		return
	}

	info, err := os.Lstat(path)
	if f.FollowSymlinks && (f.linked.links[path] || err == nil && info.Mode()&fs.ModeSymlink != 0) {
		f.requestScan(linksChanged)
		return
	}

	if f.Mode == ModeConverge && (err != nil || !info.IsDir()) {
		if f.wants(path, rel) {
			f.noteChange()
		}
		return
	}

	switch {
	case err != nil:
		f.debouncer.remove(path)
		f.batch.remove(path)
	case info.IsDir():
		for _, name := range f.namesOf(path, rel) {
			if f.Recursive && created && f.enters(path, name) && (name == rel || !matchesAny(f.Exclude, rel)) {
				f.descend(ctx, path, name)
				f.noteChange()
			}
		}
	case info.Mode().IsRegular() && f.wants(path, rel):
		how := hintChanged
		if created {
			how = hintArrived
		}
		if st := stampOf(info); !f.batch.has(path, st) && (created || !f.isPreexisting(path, st)) {
			f.debouncer.observe(path, time.Now(), st, how)
		}
	}
}

// enters says whether a folder is one whose files are taken.
func (f *folder) enters(path, rel string) bool {
	return !f.prunes(rel) && f.inNoSkippedDir(filepath.Join(path, "x"))
}

// inNoSkippedDir says whether a file is in no folder that is shut.
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

func (f *folder) event(ctx context.Context, kind string, run int64, data map[string]any) {
	raw, err := json.Marshal(data)
	if err == nil {
		err = f.w.ledger.AppendEvents(ctx, ledger.Event{Job: f.Job, Run: run, Kind: kind, Data: raw})
	}
	if err != nil && ctx.Err() == nil {
		f.w.log.Error("an event could not be recorded", "job", f.Job, "kind", kind, "error", err)
	}
}
