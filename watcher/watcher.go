package watcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"rouse/internal/ledger"
	"rouse/internal/ledger/claim"
	"rouse/watcher/after"
	"rouse/watcher/fsys"
)

const (
	defaultRescan = 5 * time.Minute
	// unresponsiveAfter is the time after which a file system that does not respond counts as a
	// problem.
	unresponsiveAfter = 10 * time.Second
)

// Options holds the dependencies and settings of a watcher.
type Options struct {
	Ledger *ledger.Ledger
	Logger *slog.Logger
	Rescan time.Duration // interval of the periodic scans; zero means 5m
	// BreakerNotices returns the notices about a job that is paused because one path is claimed
	// again and again. See ledger.PathPlaceholder. Optional.
	BreakerNotices func(job string) []ledger.Notice
	// ReturnNotices returns the notices about a file that exists again with the bytes that failed.
	// Optional.
	ReturnNotices func(job, path string, run int64) []ledger.Notice
	// Expand expands one part of a destination template for the file of a finished run. Optional if
	// no watch has a template.
	Expand func(ctx context.Context, template string, c claim.Status) (string, error)
	// Elsewhere reports whether another node may watch a job that is not watched here. The records
	// of its folder and files then belong to that node. If nil, there is no other node.
	Elsewhere func(job string) bool
}

// Watcher watches the folders of all jobs with one fsnotify watcher.
type Watcher struct {
	ledger         *ledger.Ledger
	log            *slog.Logger
	rescan         time.Duration
	runSettle      time.Duration                    // wait from the end of a run to the scan in mode converge
	breakerNotices func(job string) []ledger.Notice // may be nil
	returnNotices  func(job, path string, run int64) []ledger.Notice
	mover          *after.Mover
	elsewhere      func(job string) bool
	subs           *subscriptions
	hashes         *fsys.Hashes
	hashLanes      chan struct{} // semaphore for large files that are hashed concurrently
	ready          chan struct{}
	followNow      chan struct{} // capacity 1: the watches have changed

	mu      sync.Mutex
	folders map[string]*folder // by job; nil before the first Set
	start   func(f *folder)    // nil unless Run is active
}

// New returns a Watcher with one file-system watcher for all folders. If the system provides none,
// every folder is polled, its status reports this, and each scan asks the system again. New returns
// an error if the ledger is missing.
func New(o Options) (*Watcher, error) {
	if o.Ledger == nil {
		return nil, errors.New("watcher: a ledger is needed")
	}

	w := newWatcher(o)
	events, err := openEvents()
	if err != nil {
		err = fmt.Errorf("the system gives no file-system watcher: %w (on Linux, raise fs.inotify.max_user_instances)", err)
		w.log.Warn("watched folders are polled until the system gives a file-system watcher", "error", err)
	}

	w.subs = newSubscriptions(events, err)
	w.subs.open = openEvents
	return w, nil
}

func openEvents() (*fsnotify.Watcher, error) { return fsnotify.NewBufferedWatcher(4096) }

func newWatcher(o Options) *Watcher {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}

	if o.Rescan <= 0 {
		o.Rescan = defaultRescan
	}

	if o.Elsewhere == nil {
		o.Elsewhere = func(string) bool { return false }
	}

	hashes := fsys.NewHashes()
	return &Watcher{
		mover: &after.Mover{Hashes: hashes, Expand: o.Expand}, elsewhere: o.Elsewhere, ledger: o.Ledger, log: o.Logger, rescan: o.Rescan, runSettle: defaultRunSettle, breakerNotices: o.BreakerNotices, returnNotices: o.ReturnNotices, hashes: hashes,
		hashLanes: make(chan struct{}, 2), ready: make(chan struct{}), followNow: make(chan struct{}, 1),
	}
}

// Ready returns a channel that is closed when every folder is subscribed to and has had its first
// scan. It does not wait for a folder that does not respond for ten seconds.
func (w *Watcher) Ready() <-chan struct{} { return w.ready }

// Set replaces the watches. Unchanged watches continue. The others begin with a scan. If Set
// returns an error, it has changed nothing.
func (w *Watcher) Set(ctx context.Context, watches []Watch) error {
	watches, err := validated(watches)
	if err != nil {
		return err
	}

	next := w.foldersOf(watches)
	w.mu.Lock()
	defer w.mu.Unlock()

	// Stop old folders before new ones start: two folders of one job must not write the same state.
	for job, old := range w.folders {
		if f := next[job]; f != nil && f.equal(old.Watch) && slices.Equal(f.nestedWatches, old.nestedWatches) {
			next[job] = old
			continue
		}
		old.stop()
	}

	started := w.folders
	w.folders = next
	for job, f := range next {
		if w.start != nil && started[job] != f {
			w.start(f)
		}
	}

	select { // the actions on files may have changed
	case w.followNow <- struct{}{}:
	default:
	}
	w.forget(ctx, next)
	return nil
}

// forget deletes the recorded trees of folders that no job in mode converge watches any more. If a
// job watches such a folder again, it starts from scratch.
func (w *Watcher) forget(ctx context.Context, watched map[string]*folder) {
	known, err := w.ledger.Watches.States(ctx)
	var gone []string
	for job, st := range known {
		if f := watched[job]; st.Fingerprint != "" && (f == nil && !w.elsewhere(job) || f != nil && f.Mode != ModeConverge) {
			gone = append(gone, job)
		}
	}

	if err == nil && len(gone) > 0 {
		err = w.ledger.Watches.Delete(ctx, gone...)
	}

	for _, job := range gone {
		err = errors.Join(err, w.ledger.Events.Append(ctx, ledger.Event{Job: job, Kind: "watch.forgotten"}))
	}
	if err != nil {
		w.log.Error("the records of folders that are not watched any more could not be deleted", "error", err)
	}
}

// foldersOf returns the folders of watches. A watch excludes nested folders that are watched
// themselves.
func (w *Watcher) foldersOf(watches []Watch) map[string]*folder {
	out := make(map[string]*folder, len(watches))
	at := make(map[string][]*folder, len(watches))
	real := make([]string, len(watches)) // two paths may lead to one folder
	for i := range watches {
		f := newFolder(w, watches[i])
		out[f.Job] = f
		real[i] = f.resolveLinks(f.Path)
		at[real[i]] = append(at[real[i]], f)
	}

	// Walk up from each folder instead of comparing it with all others.
	for _, path := range real {
		for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
			for _, around := range at[dir] {
				if dir != path {
					around.nestedWatches = append(around.nestedWatches, path)
				}
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}

	return out
}

// Run watches the folders until ctx ends. It returns an error if the file-system watcher cannot be
// closed.
func (w *Watcher) Run(ctx context.Context) error {
	var group sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	group.Go(func() { w.readEvents() })
	group.Go(func() { w.follow(ctx) })
	w.mu.Lock()
	w.start = func(f *folder) {
		own, stop := context.WithCancel(ctx)
		f.cancel = stop
		group.Go(func() { f.run(own) })
	}
	for _, f := range w.folders {
		w.start(f)
	}

	w.mu.Unlock()
	w.awaitFirstScans(ctx)
	<-ctx.Done()

	w.mu.Lock()
	w.start = nil
	w.mu.Unlock()
	// Close the subscriptions before waiting for the goroutines, because that ends readEvents.
	err := w.subs.close()
	over := make(chan struct{})
	go func() { group.Wait(); close(over) }()

	select {
	case <-over:
	case <-time.After(unresponsiveAfter):
		w.log.Warn("a watched folder does not answer; the watcher stops without it")
	}

	if err != nil {
		return fmt.Errorf("the file-system watcher did not close: %w", err)
	}

	return nil
}

func (w *Watcher) awaitFirstScans(ctx context.Context) {
	w.mu.Lock()
	var scanned []chan struct{}
	for _, f := range w.folders {
		scanned = append(scanned, f.scanned)
	}

	w.mu.Unlock()
	enough := time.NewTimer(unresponsiveAfter)
	defer enough.Stop()

	for _, c := range scanned {
		select {
		case <-c:
		case <-ctx.Done():
			return
		case <-enough.C:
			close(w.ready)
			return
		}
	}

	close(w.ready)
}
