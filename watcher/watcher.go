package watcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"rouse/agentdb/ledger"
)

const (
	defaultRescan = 5 * time.Minute
	batch         = 512              // files that are claimed in one transaction
	silence       = 10 * time.Second // after which a folder that does not answer is a problem
)

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
	arms   *arms
	hashes *hashes
	slots  chan struct{} // long files that are hashed at the same time
	ready  chan struct{}
	reset  chan struct{} // capacity 1: there are other watches

	mu      sync.Mutex
	folders map[string]*folder // by job; nil before the first Set
	start   func(f *folder)    // nil while Run is not on
}

// New opens the one file-system watcher. A system that gives none makes every folder be
// polled, and its status say so.
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
	w := &Watcher{
		ledger: o.Ledger, log: o.Logger, rescan: o.Rescan, hashes: newHashes(),
		slots: make(chan struct{}, 2), ready: make(chan struct{}), reset: make(chan struct{}, 1),
	}
	events, err := fsnotify.NewBufferedWatcher(4096)
	if err != nil {
		err = fmt.Errorf("the system gives no file-system watcher: %w (on Linux, raise fs.inotify.max_user_instances)", err)
		w.log.Warn("watched folders are polled", "error", err)
	}
	w.arms = newArms(events, err)
	return w, nil
}

// Ready is closed when every folder is armed and what is in it waits to settle. A folder
// that does not answer for ten seconds is not waited for.
func (w *Watcher) Ready() <-chan struct{} { return w.ready }

// Set replaces the watches. A watch that has not changed goes on as it is; the others
// begin with a scan. With an error nothing has changed.
func (w *Watcher) Set(ctx context.Context, watches []Watch) error {
	watches, err := prepared(watches)
	if err != nil {
		return err
	}
	next := map[string]*folder{}
	for i := range watches {
		f := newFolder(w, watches[i])
		for _, o := range watches {
			if _, nested := inside(f.Path, o.Path); nested {
				f.closed = append(f.closed, o.Path)
			}
		}
		if f.Existing == ExistingIgnore {
			if f.since, err = w.baseline(ctx, f.Job); err != nil {
				return fmt.Errorf("job %s: when it began to watch cannot be recorded: %w", f.Job, err)
			}
		}
		next[f.Job] = f
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for job, old := range w.folders {
		if f := next[job]; f != nil && f.unchanged(old) {
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
	select {
	case w.reset <- struct{}{}:
	default:
	}
	return nil
}

// baseline is when a job began, for existing: ignore: its first event in the ledger, which
// is kept for ever. A job without one gets it now.
func (w *Watcher) baseline(ctx context.Context, job string) (time.Time, error) {
	first, err := w.ledger.Events(ctx, ledger.EventFilter{Job: job, Limit: 1})
	if err != nil {
		return time.Time{}, err
	}
	if len(first) > 0 {
		return first[0].At, nil
	}
	now := time.Now()
	return now, w.ledger.AppendEvents(ctx, ledger.Event{Job: job, Kind: "watch.baseline", At: now})
}

// Run watches until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	var group sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group.Go(func() { w.listen() })
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
	err := w.arms.close()
	over := make(chan struct{})
	go func() { group.Wait(); close(over) }()
	select {
	case <-over:
	case <-time.After(silence):
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
	enough := time.NewTimer(silence)
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
