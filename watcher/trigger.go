package watcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"rouse/internal/ledger"
	"rouse/watcher/tree"
)

// ErrBusy is the error of Trigger if the folder is not idle.
var ErrBusy = errors.New("it can be triggered once it is idle")

type triggerResult struct {
	accepted ledger.Accepted
	err      error
}

// triggerQueue holds requests of other goroutines for a run of a folder in mode converge.
type triggerQueue struct {
	*place
	hints *hints

	mu       sync.Mutex
	requests []chan triggerResult
	ended    bool
}

// Trigger queues a run of a folder in mode converge, as if all its files were new. It returns
// ErrBusy if the folder is not idle, and another error if the job does not watch such a folder.
func (w *Watcher) Trigger(ctx context.Context, job string) (ledger.Accepted, error) {
	w.mu.Lock()
	f, on := w.folders[job], w.start != nil
	w.mu.Unlock()
	if err := triggerable(f, job); err != nil {
		return ledger.Accepted{}, err
	}
	if !on {
		return ledger.Accepted{}, fmt.Errorf("job %s: its folder is not watched yet, or not any more", job)
	}

	result := make(chan triggerResult, 1) // buffered: the folder need not wait if ctx ends first
	if !f.triggers.request(result) {
		return ledger.Accepted{}, fmt.Errorf("job %s: its watch has just changed; try again", job)
	}

	select {
	case r := <-result:
		return r.accepted, r.err
	case <-ctx.Done():
		return ledger.Accepted{}, context.Cause(ctx)
	}
}

// Trigger queues a run of a folder in mode converge without a running watcher. It does not wait
// until the folder has settled: its last run must only have ended. watches holds the watches of all
// jobs, because a folder excludes the folders inside it that other jobs watch.
func Trigger(ctx context.Context, l *ledger.Ledger, watches []Watch, job string) (ledger.Accepted, error) {
	watches, err := validated(watches)
	if err != nil {
		return ledger.Accepted{}, err
	}

	w := newWatcher(Options{Ledger: l, Logger: slog.New(slog.DiscardHandler)})
	w.subs = newSubscriptions(nil, errors.New("no watcher runs"))
	f := w.foldersOf(watches)[job]
	if err := triggerable(f, job); err != nil {
		return ledger.Accepted{}, err
	}

	f.standalone = true
	return f.trigger(ctx)
}

func triggerable(f *folder, job string) error {
	switch {
	case f == nil:
		return fmt.Errorf("job %s watches no folder", job)
	case f.Mode != ModeConverge:
		return fmt.Errorf("job %s takes files, not its folder as a whole (mode: %s); name a file", job, f.Mode)
	}
	return nil
}

func (f *folder) trigger(ctx context.Context) (ledger.Accepted, error) {
	if err := f.loop.busy(); err != nil {
		return ledger.Accepted{}, err
	}

	// Reading the folder may take long, so check the state again afterwards.
	walk, _ := f.inspect(ctx)
	if walk == nil {
		return ledger.Accepted{}, fmt.Errorf("job %s: the folder %s cannot be read", f.Job, f.Path)
	}

	if !f.loop.conv.loaded || f.loop.conv.root != f.root {
		if err := f.loop.loadState(ctx); err != nil {
			return ledger.Accepted{}, err
		}
	}

	if f.standalone && f.loop.conv.phase == StateSettling {
		f.loop.conv.state.Round = 0
		f.loop.setPhase(StateIdle, time.Time{})
	}
	if err := f.loop.busy(); err != nil {
		return ledger.Accepted{}, err
	}

	// Compared with an empty tree, every file counts as added.
	cur := tree.New(f.root, walk.files)
	changes, _, _ := tree.Changes(nil, cur)
	accepted, err := f.loop.dispatch(ctx, cur, nil, changes)
	if err != nil {
		f.loop.conv.loaded, f.loop.conv.checkAt = false, time.Now().Add(time.Second)
		return accepted, err
	}

	f.event(ctx, "watch.triggered", accepted.Run, map[string]any{"path": f.Path, "files": len(cur)})
	return accepted, nil
}

func (l *loop) busy() error {
	conv := &l.conv
	l.report.mu.Lock()
	missing := l.report.missing
	l.report.mu.Unlock()

	switch {
	case missing:
		return fmt.Errorf("job %s: the folder %s is not there", l.Job, l.Path)
	case conv.phase == StateIdle:
		return nil
	}

	why := ""
	if conv.state.Run != 0 && conv.phase != StateDebouncing {
		why = fmt.Sprintf(" (run %d)", conv.state.Run)
	}

	return fmt.Errorf("job %s: its folder is %s%s; %w", l.Job, conv.phase, why, ErrBusy)
}

// request passes a request to the folder's goroutine. It returns false if the goroutine has ended.
func (q *triggerQueue) request(a chan triggerResult) bool {
	q.mu.Lock()
	defer q.mu.Unlock()

	if q.ended {
		return false
	}

	q.requests = append(q.requests, a)
	q.hints.notify()
	return true
}

func (q *triggerQueue) drain() []chan triggerResult {
	q.mu.Lock()
	defer q.mu.Unlock()
	asks := q.requests
	q.requests = nil
	return asks
}

// refuse returns an error for the requests that came too late for the folder's goroutine.
func (q *triggerQueue) refuse() {
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
	for _, ask := range q.drain() {
		ask <- triggerResult{err: fmt.Errorf("job %s: its watch ends", q.Job)}
	}
}
