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
	// pace is the least time between two looks at what was heard: a file that is written
	// without a pause must not cost a look for each of its events.
	pace = 2 * time.Millisecond
	// maxKnown bounds each half of the files that a scan passes over: some 40 MB in all.
	maxKnown = 1 << 18
)

// heard is a path that an event named.
type heard struct {
	path    string
	created bool // it is new in its folder
}

// folder is a watch at work. What is above mu belongs to its goroutine.
type folder struct {
	Watch
	w       *Watcher
	closed  []string      // folders inside it that are another watch's
	alone   bool          // no watcher runs
	scanned chan struct{} // closed after the first scan
	cancel  context.CancelFunc

	settler  *settler
	batch    *batch
	loop     loop
	linked   linked
	before   before
	root     string          // Path with its links resolved; "" while it is missing
	shut     map[string]bool // folders that are not entered: destinations and other watches'
	marker   marker
	known    *recent[struct{}] // files with which nothing is to be done
	long     map[string]bool   // files that are being hashed beside
	beside   sync.WaitGroup
	scanAt   time.Time
	lastLook time.Time

	mu       sync.Mutex
	heardOf  map[string]int // paths of events, by their place in heardAs
	heardAs  []heard
	lostOf   map[string]bool   // armed folders that went away: whether they were renamed
	hashed   []candidate       // long files, done
	unmoved  map[string]string // files that could not be moved away, and why
	retry    map[string]bool   // those of them that no scan has tried again yet
	stuck    bool              // the last move failed
	scanFor  string            // why a scan is wanted, "" when none is
	status   Status
	missing  bool
	phase    State // of the loop
	said     word  // about its run
	unheard  bool
	asks     []chan answer
	over     bool
	scanning time.Time // since when; zero when it is not
	troubled map[string]string
	wake     chan struct{} // capacity 1

	writing sync.Mutex // held while the state of the loop is written
	stopped bool       // nothing is any more
}

func newFolder(w *Watcher, watch Watch) *folder {
	return &folder{
		Watch: watch, w: w, scanned: make(chan struct{}), settler: newSettler(watch.Settle), batch: newBatch(), loop: loop{phase: StateIdle}, phase: StateIdle, linked: newLinked(),
		marker: newMarker(), known: newRecent[struct{}](maxKnown), long: map[string]bool{},
		heardOf: map[string]int{}, lostOf: map[string]bool{}, unmoved: map[string]string{}, retry: map[string]bool{}, troubled: map[string]string{},
		wake: make(chan struct{}, 1),
	}
}

// unchanged says whether another folder can go on in place of this one.
func (f *folder) unchanged(old *folder) bool {
	if !f.equal(&old.Watch) || len(f.closed) != len(old.closed) {
		return false
	}

	for i, dir := range f.closed {
		if old.closed[i] != dir {
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
	defer f.beside.Wait()
	defer func() { f.w.arms.disarm(f, f.w.arms.armed(f)...) }()

	defer f.w.unfollow(f)

	defer f.end()

	f.scan(ctx, "start")
	close(f.scanned)

	for ctx.Err() == nil {
		f.lastLook = time.Now()
		f.dropLost()
		f.lookAtHeard(ctx)

		if f.Mode == ModeConverge {
			f.converge(ctx)
		} else {
			f.takeReady(ctx)
			f.takeBatch(ctx)
		}

		if why := f.dueScan(); why != "" {
			f.scan(ctx, why)
		}

		f.sleep(ctx)
	}
}

// sleep waits until there is something to do.
func (f *folder) sleep(ctx context.Context) {
	f.mu.Lock()
	f.status.Waiting = f.settler.len() + len(f.long) + f.batch.len()
	f.mu.Unlock()
	at := f.scanAt
	for _, next := range []time.Time{f.settler.next(), f.batchAt(), f.loopAt()} {
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
	case <-f.wake:
	}

	timer.Reset(time.Until(f.lastLook.Add(pace)))
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// hear notes the path of an event. The event loop calls it: it must not do more.
func (f *folder) hear(path string, created bool) {
	f.mu.Lock()
	at, again := f.heardOf[path]
	if !again {
		at = len(f.heardAs)
		f.heardOf[path] = at
		f.heardAs = append(f.heardAs, heard{path: path})
	}

	f.heardAs[at].created = f.heardAs[at].created || created
	f.mu.Unlock()
	f.poke()
}

// lose notes that an armed folder went away. The event loop calls it.
func (f *folder) lose(dir string, renamed bool) {
	f.mu.Lock()
	f.lostOf[dir] = f.lostOf[dir] || renamed
	f.mu.Unlock()
	f.poke()
}

func (f *folder) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// askScan wants a scan; the first reason is kept.
func (f *folder) askScan(why string) {
	f.mu.Lock()
	if f.scanFor == "" {
		f.scanFor = why
	}
	f.mu.Unlock()
	f.poke()
}

// dueScan is why a scan is due, "" when none is.
func (f *folder) dueScan() string {
	f.mu.Lock()
	defer f.mu.Unlock()

	why := f.scanFor
	f.scanFor = ""
	if now := time.Now(); why == "" && !now.Before(f.scanAt) {
		if f.root != "" && (f.loop.phase == StateProcessing || f.loop.phase == StateSettling) {
			f.scanAt = now.Add(f.w.rescan) // it is looked at when its run is over
			return ""
		}
		why = periodic
	}

	return why
}

// dropLost lets go of folders that went away. One that is back already may have been armed before
// that was heard of, so it is looked at again.
func (f *folder) dropLost() {
	f.mu.Lock()
	if len(f.lostOf) == 0 {
		f.mu.Unlock()
		return
	}

	lost := f.lostOf // now ours alone: the event loop goes on with another
	f.lostOf = map[string]bool{}
	f.mu.Unlock()
	renamed := false
	for dir, moved := range lost {
		f.w.arms.disarm(f, dir)
		f.hear(dir, true)
		renamed = renamed || moved
		if dir == f.root {
			f.askScan("the folder went away")
		}
	}
	if !renamed {
		return
	}

	// The system goes on to watch what is in a renamed folder, under its old name.
	for _, dir := range f.w.arms.armed(f) {
		for up := filepath.Dir(dir); up != filepath.Dir(up); up = filepath.Dir(up) {
			if lost[up] {
				f.w.arms.disarm(f, dir)
				break
			}
		}
	}

	f.askScan("a folder was renamed")
}

// lookAtHeard looks at the paths that events named.
func (f *folder) lookAtHeard(ctx context.Context) {
	f.mu.Lock()
	all := f.heardAs
	if len(all) > 0 {
		f.heardOf, f.heardAs = map[string]int{}, nil
	}

	f.mu.Unlock()
	for _, h := range all {
		if f.root != "" {
			f.lookAt(ctx, h.path, h.created)
		} else if _, leads := inside(h.path, f.Path); leads || h.path == f.Path {
			f.askScan("the folder may be back")
		}
	}
}

func (f *folder) lookAt(ctx context.Context, path string, created bool) {
	rel, ok := inside(f.root, path)
	if !ok {
		return
	}

	info, err := os.Lstat(path)
	if f.FollowSymlinks && (f.linked.links[path] || err == nil && info.Mode()&fs.ModeSymlink != 0) {
		f.askScan(linksChanged)
		return
	}

	if f.Mode == ModeConverge && (err != nil || !info.IsDir()) {
		if f.wants(path, rel) {
			f.stir()
		}
		return
	}

	switch {
	case err != nil:
		f.settler.forget(path)
		f.batch.drop(path)
	case info.IsDir():
		for _, name := range f.names(path, rel) {
			if f.Recursive && created && f.enters(path, name) && (name == rel || !matchesAny(f.Exclude, rel)) {
				f.descend(ctx, path, name)
				f.stir()
			}
		}
	case info.Mode().IsRegular() && f.wants(path, rel):
		how := hintChanged
		if created {
			how = hintArrived
		}
		if st := stampOf(info); !f.batch.holds(path, st) && (created || !f.leaves(path, st)) {
			f.settler.see(path, time.Now(), st, how)
		}
	}
}

// enters says whether a folder is one whose files are taken.
func (f *folder) enters(path, rel string) bool {
	return !f.prunes(rel) && f.open(filepath.Join(path, "x"))
}

// open says whether a file is in no folder that is shut.
func (f *folder) open(path string) bool {
	if len(f.shut) == 0 {
		return true
	}

	for dir := filepath.Dir(path); dir != f.root && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if f.shut[dir] {
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
