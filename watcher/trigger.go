package watcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"rouse/internal/ledger"
	"rouse/watcher/tree"
)

// ErrBusy is what Trigger gives while the folder is not idle.
var ErrBusy = errors.New("it can be triggered once it is idle")

type triggerResult struct {
	accepted ledger.Accepted
	err      error
}

// Trigger queues a run of a folder that converges, as if all that is in it were new (OSA-94).
// The folder must be idle: ErrBusy.
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

	result := make(chan triggerResult, 1) // so that the folder need not wait if ctx ends first
	if !f.requestTrigger(result) {
		return ledger.Accepted{}, fmt.Errorf("job %s: its watch has just changed; try again", job)
	}

	select {
	case r := <-result:
		return r.accepted, r.err
	case <-ctx.Done():
		return ledger.Accepted{}, context.Cause(ctx)
	}
}

// Trigger does the same without a running watcher. Nobody waits for the folder to settle then:
// it is enough that its last run is over. The watches are those of all jobs, because a folder
// leaves out what another job watches inside it.
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
	if err := f.busy(); err != nil {
		return ledger.Accepted{}, err
	}

	// Reading the folder may take long; the state is asked for once more after it.
	walk, _ := f.inspect(ctx)
	if walk == nil {
		return ledger.Accepted{}, fmt.Errorf("job %s: the folder %s cannot be read", f.Job, f.Path)
	}

	if !f.conv.loaded || f.conv.root != f.root {
		if err := f.loadState(ctx); err != nil {
			return ledger.Accepted{}, err
		}
	}

	if f.standalone && f.conv.phase == StateSettling {
		f.conv.state.Round = 0
		f.setPhase(StateIdle, time.Time{})
	}
	if err := f.busy(); err != nil {
		return ledger.Accepted{}, err
	}

	// Compared with an empty tree, each file counts as added.
	cur := tree.New(f.root, walk.files)
	changes, _, _ := tree.Changes(nil, cur)
	accepted, err := f.dispatch(ctx, cur, nil, changes)
	if err != nil {
		f.conv.loaded, f.conv.checkAt = false, time.Now().Add(time.Second)
		return accepted, err
	}

	f.event(ctx, "watch.triggered", accepted.Run, map[string]any{"path": f.Path, "files": len(cur)})
	return accepted, nil
}

func (f *folder) busy() error {
	l := &f.conv
	f.mu.Lock()
	missing := f.missing
	f.mu.Unlock()

	switch {
	case missing:
		return fmt.Errorf("job %s: the folder %s is not there", f.Job, f.Path)
	case l.phase == StateIdle:
		return nil
	}

	why := ""
	if l.state.Run != 0 && l.phase != StateDebouncing {
		why = fmt.Sprintf(" (run %d)", l.state.Run)
	}

	return fmt.Errorf("job %s: its folder is %s%s; %w", f.Job, l.phase, why, ErrBusy)
}

// requestTrigger hands a request to the folder's goroutine; false when that has ended.
func (f *folder) requestTrigger(a chan triggerResult) bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.ended {
		return false
	}

	f.triggerRequests = append(f.triggerRequests, a)
	f.notify()
	return true
}

func (f *folder) drainTriggers() []chan triggerResult {
	f.mu.Lock()
	defer f.mu.Unlock()
	asks := f.triggerRequests
	f.triggerRequests = nil
	return asks
}

// refuseTriggers answers the requests that come too late for the folder's goroutine.
func (f *folder) refuseTriggers() {
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	for _, ask := range f.drainTriggers() {
		ask <- triggerResult{err: fmt.Errorf("job %s: its watch ends", f.Job)}
	}
}
