package watcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"rouse/agentdb/ledger"
)

// ErrBusy is what Trigger gives while the folder is not idle.
var ErrBusy = errors.New("it can be triggered once it is idle")

type answer struct {
	accepted ledger.Accepted
	err      error
}

// Trigger queues a run of a folder that converges, of all that is in it: what was known of it
// is forgotten (OSA-94). The folder must be idle: ErrBusy.
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

	ask := make(chan answer, 1)
	if !f.ask(ask) {
		return ledger.Accepted{}, fmt.Errorf("job %s: its watch has just changed; try again", job)
	}

	select {
	case a := <-ask:
		return a.accepted, a.err
	case <-ctx.Done():
		return ledger.Accepted{}, context.Cause(ctx)
	}
}

// Trigger does the same where no watcher runs: there nobody waits for a folder to settle, and the
// end of its last run is enough. The watches are those of all jobs.
func Trigger(ctx context.Context, l *ledger.Ledger, watches []Watch, job string) (ledger.Accepted, error) {
	watches, err := prepared(watches)
	if err != nil {
		return ledger.Accepted{}, err
	}

	w := newWatcher(Options{Ledger: l, Logger: slog.New(slog.DiscardHandler)})
	w.arms = newArms(nil, errors.New("no watcher runs"))
	f := w.foldersOf(watches)[job]
	if err := triggerable(f, job); err != nil {
		return ledger.Accepted{}, err
	}

	f.alone = true
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

	walk, _ := f.look(ctx)
	if walk == nil {
		return ledger.Accepted{}, fmt.Errorf("job %s: the folder %s cannot be read", f.Job, f.Path)
	}

	if !f.loop.read || f.loop.root != f.root {
		if err := f.recall(ctx); err != nil {
			return ledger.Accepted{}, err
		}
	}

	if f.alone && f.loop.phase == StateSettling {
		f.loop.st.Round = 0
		f.turn(StateIdle, time.Time{})
	}
	if err := f.busy(); err != nil {
		return ledger.Accepted{}, err
	}

	cur := treeOf(f.root, walk.files)
	changes, _, _ := difference(nil, cur)
	accepted, err := f.dispatch(ctx, cur, nil, changes)
	if err != nil {
		f.loop.read, f.loop.at = false, time.Now().Add(time.Second)
		return accepted, err
	}

	f.event(ctx, "watch.triggered", accepted.Run, map[string]any{"path": f.Path, "files": len(cur)})
	return accepted, nil
}

func (f *folder) busy() error {
	l := &f.loop
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
	if l.st.Run != 0 && l.phase != StateDebouncing {
		why = fmt.Sprintf(" (run %d)", l.st.Run)
	}

	return fmt.Errorf("job %s: its folder is %s%s; %w", f.Job, l.phase, why, ErrBusy)
}

// ask hands a wish to the folder's goroutine, if there is one.
func (f *folder) ask(a chan answer) bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.over {
		return false
	}

	f.asks = append(f.asks, a)
	f.poke()
	return true
}

func (f *folder) takeAsks() []chan answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	asks := f.asks
	f.asks = nil
	return asks
}

// end refuses what is asked of a folder whose goroutine ends.
func (f *folder) end() {
	f.mu.Lock()
	f.over = true
	f.mu.Unlock()
	for _, ask := range f.takeAsks() {
		ask <- answer{err: fmt.Errorf("job %s: its watch ends", f.Job)}
	}
}
