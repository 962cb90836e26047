package watcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"rouse/agentdb/ledger"
)

const (
	defaultSettle = time.Second
	defaultRescan = 5 * time.Minute
	pollEvery     = 2 * time.Second  // a folder that cannot be watched
	missingEvery  = 30 * time.Second // a folder that is not there, if no event tells of it
	batch         = 256              // files that are claimed in one transaction
)

// What a watch does with files that were there before the job.
const (
	ExistingProcess = "process"
	ExistingIgnore  = "ignore"
)

// After is what happens to a file after its run.
type After struct {
	Action string // "" or leave, move, delete
	Dir    string // of move
}

// Watch is one job's folder.
type Watch struct {
	Job, Agent           string
	Path                 string // absolute
	Include, Exclude     []string
	Recursive            bool
	Settle               time.Duration // 0 means 1s
	Existing             string        // "" means process
	OnSuccess, OnFailure After
}

// State is what a watch is doing.
type State string

// The states.
const (
	StateIdle       State = "idle"
	StateDebouncing State = "debouncing" // files have changed and have not settled
	StateMissing    State = "missing"    // the folder is not there
)

// Status is a watch as its owner sees it.
type Status struct {
	Job, Path string
	State     State
	Waiting   int    // files that have not settled
	Degraded  string // why it polls instead of being told, "" when it is told
	Problem   string
	Rescanned time.Time
}

// Options are the watcher's parts.
type Options struct {
	Ledger *ledger.Ledger
	Logger *slog.Logger
	Rescan time.Duration // 0 means 5m
}

// Watcher watches the folders of all jobs with one fsnotify watcher.
type Watcher struct {
	ledger *ledger.Ledger
	log    *slog.Logger
	rescan time.Duration
	fs     *fsnotify.Watcher
	ready  chan struct{}
	once   sync.Once
	wake   chan struct{} // capacity 1: deadlines may have changed
	hashes hashes        // of the loop alone

	mu      sync.Mutex
	watches map[string]*watched
	pending *pending
}

// watched is a watch with what is known of its folder.
type watched struct {
	Watch
	root      string // Path with its links resolved
	armed     map[string]bool
	missing   bool
	degraded  string
	problem   string
	rescanned time.Time
	scanAt    time.Time
	since     time.Time // existing: ignore leaves what is older
	troubled  map[string]bool
}

// New opens the one file-system watcher.
func New(o Options) (*Watcher, error) {
	if o.Ledger == nil {
		return nil, errors.New("watcher: a ledger is needed")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Rescan <= 0 {
		o.Rescan = defaultRescan
	}
	events, err := fsnotify.NewBufferedWatcher(4096)
	if err != nil {
		return nil, fmt.Errorf("the system gives no file-system watcher: %w; raise fs.inotify.max_user_instances", err)
	}
	return &Watcher{
		ledger: o.Ledger, log: o.Logger, rescan: o.Rescan, fs: events,
		ready: make(chan struct{}), wake: make(chan struct{}, 1),
		watches: map[string]*watched{}, pending: newPending(),
	}, nil
}

// Ready is closed when every folder is armed and was scanned once.
func (w *Watcher) Ready() <-chan struct{} { return w.ready }

// Set replaces the watches. What waits to settle for a job that stays goes on waiting.
func (w *Watcher) Set(_ context.Context, watches []Watch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := map[string]*watched{}
	now := time.Now()
	for _, o := range watches {
		if o.Settle <= 0 {
			o.Settle = defaultSettle
		}
		o.Path = filepath.Clean(o.Path)
		for _, a := range []After{o.OnSuccess, o.OnFailure} {
			// A destination inside the folder is never taken for new files.
			if rel, ok := inside(o.Path, a.Dir); a.Action == "move" && ok {
				o.Exclude = append(slices.Clone(o.Exclude), rel)
			}
		}
		entry := &watched{Watch: o, armed: map[string]bool{}, troubled: map[string]bool{}, scanAt: now, since: now}
		if old := w.watches[o.Job]; old != nil && old.Path == o.Path {
			entry.since = old.since
		}
		next[o.Job] = entry
	}
	for _, dir := range w.fs.WatchList() {
		if err := w.fs.Remove(dir); err != nil && !errors.Is(err, fsnotify.ErrNonExistentWatch) {
			w.log.Debug("a folder could not be unwatched", "path", dir, "error", err)
		}
	}
	w.watches = next
	w.pending.drop(func(job string) bool { return next[job] != nil })
	poke(w.wake)
	return nil
}

// inside gives a path relative to a folder that holds it.
func inside(dir, path string) (string, bool) {
	rel, err := filepath.Rel(dir, path)
	if err != nil || path == "" || rel == "." || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return "", false
	}
	return filepath.ToSlash(rel), true
}

// Status lists the watches by job.
func (w *Watcher) Status() []Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []Status
	for _, job := range slices.Sorted(maps.Keys(w.watches)) {
		e := w.watches[job]
		st := Status{Job: job, Path: e.Path, State: StateIdle, Waiting: w.pending.of(job), Degraded: e.degraded, Problem: e.problem, Rescanned: e.rescanned}
		switch {
		case e.missing:
			st.State = StateMissing
		case st.Waiting > 0:
			st.State = StateDebouncing
		}
		out = append(out, st)
	}
	return out
}

// Run watches until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	var listening sync.WaitGroup
	listening.Go(w.listen)
	defer func() {
		if err := w.fs.Close(); err != nil {
			w.log.Warn("the file-system watcher did not close", "error", err)
		}
		listening.Wait()
	}()
	for {
		changed := w.ledger.Changed()
		w.scanDue(ctx)
		w.settle(ctx)
		w.finishAfters(ctx)
		w.once.Do(func() { close(w.ready) })
		if w.sleep(ctx, changed) {
			return nil
		}
	}
}

// listen takes events as fast as they come and only marks their paths: whoever does more
// here makes the kernel's queue overflow.
func (w *Watcher) listen() {
	for {
		select {
		case e, ok := <-w.fs.Events:
			if !ok {
				return
			}
			w.hear(e)
		case err, ok := <-w.fs.Errors:
			if !ok {
				return
			}
			w.lost(err)
		}
		poke(w.wake)
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sleep waits until there is something to do; it reports that ctx has ended.
func (w *Watcher) sleep(ctx context.Context, changed <-chan struct{}) bool {
	for {
		next := w.nextLook()
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			return true
		case <-w.wake:
			timer.Stop()
			if next = w.nextLook(); next.After(time.Now()) {
				continue // it only moved the deadline
			}
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
		return false
	}
}

// nextLook is when there is something to do without an event.
func (w *Watcher) nextLook() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := time.Now().Add(w.rescan)
	if next := w.pending.next(); !next.IsZero() && next.Before(at) {
		at = next
	}
	for _, e := range w.watches {
		if e.scanAt.Before(at) {
			at = e.scanAt
		}
	}
	return at
}

// hear marks the path of an event for every watch that it may concern.
func (w *Watcher) hear(e fsnotify.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, entry := range w.watches {
		if entry.missing || e.Name == entry.root {
			// The folder itself came, went or was replaced.
			if strings.HasPrefix(entry.Path, e.Name) || e.Name == entry.root {
				entry.scanAt, entry.armed = now, map[string]bool{}
			}
			continue
		}
		rel, ok := inside(entry.root, e.Name)
		if !ok || entry.prunes(rel) || (!entry.Recursive && strings.Contains(rel, "/")) {
			continue
		}
		if e.Has(fsnotify.Create) && entry.Recursive {
			if info, err := os.Lstat(e.Name); err == nil && info.IsDir() {
				entry.scanAt = now // what is in it already gave no event
				continue
			}
		}
		if e.Has(fsnotify.Remove) || !entry.takes(rel) {
			continue
		}
		w.pending.mark(key{entry.Job, e.Name}, now.Add(entry.Settle))
	}
}

// lost deals with events that the system could not deliver: everything is looked at.
func (w *Watcher) lost(err error) {
	w.log.Warn("file events were lost; every folder is scanned", "error", err)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.watches {
		e.scanAt = time.Now()
	}
}

// scanDue scans the folders whose time has come.
func (w *Watcher) scanDue(ctx context.Context) {
	w.mu.Lock()
	now := time.Now()
	var due []*watched
	for _, job := range slices.Sorted(maps.Keys(w.watches)) {
		if e := w.watches[job]; !e.scanAt.After(now) {
			due = append(due, e)
		}
	}
	w.mu.Unlock()
	for _, e := range due {
		if ctx.Err() == nil {
			w.scan(ctx, e)
		}
	}
}

// scan arms a folder, then looks at what is in it: in this order nothing falls between.
func (w *Watcher) scan(ctx context.Context, e *watched) {
	root, err := filepath.EvalSymlinks(e.Path)
	if err == nil {
		var info fs.FileInfo
		if info, err = os.Stat(root); err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is not a folder", e.Path)
		}
	}
	if err != nil {
		w.absent(ctx, e, err)
		return
	}
	w.mu.Lock()
	back := e.missing
	first := e.rescanned.IsZero()
	e.root, e.missing, e.problem, e.degraded = root, false, "", ""
	if back || first {
		e.armed = map[string]bool{}
	}
	w.mu.Unlock()
	found, err := w.walk(e, root)
	w.mu.Lock()
	now := time.Now()
	for _, f := range found {
		if _, waits := w.pending.items[key{e.Job, f.path}]; !waits {
			w.pending.mark(key{e.Job, f.path}, now.Add(f.wait))
		}
	}
	e.rescanned, e.scanAt = now, now.Add(w.rescan)
	if err != nil {
		e.problem = err.Error()
	}
	if e.degraded != "" {
		e.scanAt = now.Add(pollEvery)
	}
	w.mu.Unlock()
	if back {
		w.event(ctx, e.Job, "watch.returned", map[string]any{"path": e.Path})
	}
}

type foundFile struct {
	path string
	wait time.Duration
}

// walk lists the files of a folder that are to be looked at, arming each folder first.
func (w *Watcher) walk(e *watched, root string) ([]foundFile, error) {
	var out []foundFile
	var trouble error
	var visit func(dir string)
	visit = func(dir string) {
		w.arm(e, dir)
		entries, err := os.ReadDir(dir)
		if err != nil {
			trouble = errors.Join(trouble, fmt.Errorf("%s cannot be read: %w", dir, err))
			return
		}
		for _, d := range entries {
			path := filepath.Join(dir, d.Name())
			rel, ok := inside(root, path)
			if !ok || e.prunes(rel) {
				continue
			}
			if d.IsDir() {
				if e.Recursive {
					visit(path)
				}
				continue
			}
			if !d.Type().IsRegular() || !e.takes(rel) {
				continue
			}
			info, err := d.Info()
			if err != nil {
				continue // gone again
			}
			if e.Existing == ExistingIgnore && info.ModTime().Before(e.since) {
				continue
			}
			out = append(out, foundFile{path, e.Settle})
		}
	}
	visit(root)
	return out, trouble
}

// arm asks to be told of changes in a folder; where the system cannot, the folder is polled.
func (w *Watcher) arm(e *watched, dir string) {
	w.mu.Lock()
	armed := e.armed[dir]
	w.mu.Unlock()
	if armed {
		return
	}
	err := w.fs.Add(dir)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		e.armed[dir] = true
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EMFILE):
		e.degraded = "the system's limit of watches is reached (raise fs.inotify.max_user_watches); the folder is looked at every " + pollEvery.String()
	case !errors.Is(err, fs.ErrNotExist):
		e.degraded = fmt.Sprintf("%s cannot be watched (%v); the folder is looked at every %s", dir, err, pollEvery)
	}
}

// absent notes that a folder is not there, and watches for its return.
func (w *Watcher) absent(ctx context.Context, e *watched, err error) {
	parent := filepath.Dir(e.Path)
	for parent != filepath.Dir(parent) {
		if _, statErr := os.Stat(parent); statErr == nil {
			break
		}
		parent = filepath.Dir(parent)
	}
	if armErr := w.fs.Add(parent); armErr != nil {
		w.log.Debug("the parent of a missing folder cannot be watched", "path", parent, "error", armErr)
	}
	w.mu.Lock()
	news := !e.missing
	e.missing, e.problem, e.armed = true, fmt.Sprintf("the folder %s cannot be watched: %v; it is as soon as it is there", e.Path, err), map[string]bool{}
	e.scanAt = time.Now().Add(missingEvery)
	problem := e.problem
	w.mu.Unlock()
	if news {
		w.log.Warn("a watched folder is missing", "job", e.Job, "path", e.Path, "error", err)
		w.event(ctx, e.Job, "watch.missing", map[string]any{"path": e.Path, "error": problem})
	}
}

func (w *Watcher) event(ctx context.Context, job, kind string, data map[string]any) {
	raw, err := json.Marshal(data)
	if err == nil {
		err = w.ledger.AppendEvents(ctx, ledger.Event{Job: job, Kind: kind, Data: raw})
	}
	if err != nil && ctx.Err() == nil {
		w.log.Error("an event could not be recorded", "job", job, "kind", kind, "error", err)
	}
}
