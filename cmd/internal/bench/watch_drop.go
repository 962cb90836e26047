package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
	"rouse/watcher"
)

// recheck is how long the watcher looks at a file that was complete before it was renamed
// into the folder: the settle window of such a file.
const recheck = 50 * time.Millisecond

// dropKind is one way for a file to arrive.
type dropKind struct {
	name    string
	size    int
	renamed bool
	settle  time.Duration // that passes before the file is ready
}

// dropKinds are those that are measured.
var dropKinds = []dropKind{
	{"1 KiB renamed in", 1 << 10, true, recheck},
	{"1 MiB renamed in", 1 << 20, true, recheck},
	{"1 KiB written", 1 << 10, false, fastSettle},
	{"1 MiB written", 1 << 20, false, fastSettle},
}

// drops measures what a dropped file takes beyond its settle window until its run is
// started. What it is compared with alternates with it, drop by drop.
func (b *watchBench) drops(ctx context.Context) ([]Figure, error) {
	var out []Figure
	for _, k := range dropKinds {
		var p50, allowed, events, commits, all []float64
		for pass := range b.passes {
			b.report("%s: pass %d of %d", k.name, pass+1, b.passes)
			took, event, commit, err := b.dropPass(ctx, k)
			if err != nil {
				return nil, err
			}

			all = append(all, took...)
			p50, events, commits = append(p50, median(took)), append(events, median(event)), append(commits, median(commit))
			// Of the same pass, so that a slow disk raises what is allowed as well.
			allowed = append(allowed, 3*median(event)+median(commit))
		}

		b.report("%s: fsnotify p50 %.3f ms, one durable commit %.3f ms", k.name, median(events), median(commits))
		r, p99 := median(ratios(p50, allowed)), percentile(all, 99)
		out = append(out,
			Figure{k.name + " → started, p50", median(p50), median(allowed), "ms after settle", r, "≤ 3× fsnotify + 1 commit", r <= 1},
			Figure{k.name + " → started, p99", p99, 0, "ms after settle", 0, "≤ 10 ms", p99 <= 10})
	}

	return out, nil
}

// dropPass drops files one at a time: each waits for the run of the one before.
func (b *watchBench) dropPass(ctx context.Context, k dropKind) (took, event, commit []float64, err error) {
	base, err := os.MkdirTemp(b.base, "drop")
	if err != nil {
		return nil, nil, nil, err
	}
	defer os.RemoveAll(base)

	inbox, heard, staging := filepath.Join(base, "inbox"), filepath.Join(base, "heard"), filepath.Join(base, "staging")
	for _, dir := range []string{inbox, heard, staging} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, nil, nil, err
		}
	}

	// The baseline of an event: the same rename in another folder, seen by fsnotify alone.
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, nil, nil, err
	}
	defer events.Close()

	if err := events.Add(heard); err != nil {
		return nil, nil, nil, err
	}

	bare, err := ledger.Open(ctx, ledger.Options{Path: filepath.Join(base, "bare.db")})
	if err != nil {
		return nil, nil, nil, err
	}
	defer bare.Close()

	started := make(chan time.Time, b.sizes.fill)
	w, err := startWatching(ctx, filepath.Join(base, "ledger.db"), watcher.Options{}, watcher.Watch{Job: "in", Agent: "a", Path: inbox, Settle: fastSettle},
		func(ledger.Run) { started <- time.Now() })
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() { err = errors.Join(err, w.halt()) }()

	if err := b.warmUp(ctx, bare, w.ledger, started); err != nil {
		return nil, nil, nil, err
	}

	content := make([]byte, k.size)
	for i := range b.sizes.drops {
		if err := awaitIdle(ctx, w.ledger); err != nil {
			return nil, nil, nil, err
		}
		time.Sleep(k.settle / 2) // as before the baseline, and as where files come now and then

		copy(content, fmt.Sprint(i))
		begin, err := k.arrive(staging, inbox, fmt.Sprint(i, ".csv"), content)
		if err != nil {
			return nil, nil, nil, err
		}

		// In the middle of the window, when the run before is over and nobody has begun with this file.
		time.Sleep(k.settle / 2)
		heardAfter, err := hearRename(events, staging, heard, i)
		if err != nil {
			return nil, nil, nil, err
		}
		committed := time.Now()
		if _, err := bare.Enqueue(ctx, ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI}); err != nil {
			return nil, nil, nil, err
		}
		event, commit = append(event, milliseconds(heardAfter)), append(commit, milliseconds(time.Since(committed)))

		at, err := awaitStart(ctx, started)
		if err != nil {
			return nil, nil, nil, err
		}

		// The settle window is waited for on purpose, so it is not part of the cost.
		took = append(took, milliseconds(at.Sub(begin)-k.settle))
	}

	return took, event, commit, nil
}

// warmUp gives both ledgers the same history, and waits until the watcher's runs of it are over.
func (b *watchBench) warmUp(ctx context.Context, bare, watched *ledger.Ledger, started <-chan time.Time) error {
	for _, l := range []*ledger.Ledger{bare, watched} {
		if err := fillLog(ctx, l, b.sizes.fill); err != nil {
			return err
		}
	}

	for range b.sizes.fill {
		if _, err := awaitStart(ctx, started); err != nil {
			return err
		}
	}

	return nil
}

// awaitStart waits for a start.
func awaitStart(ctx context.Context, started <-chan time.Time) (time.Time, error) {
	const patience = time.Minute
	select {
	case at := <-started:
		return at, nil
	case <-time.After(patience):
		return time.Time{}, fmt.Errorf("no run started within %s", patience)
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
}

// awaitIdle waits until all runs are over.
func awaitIdle(ctx context.Context, l *ledger.Ledger) error {
	for {
		changed := l.Changed() // before the look: one that ends meanwhile is not missed
		switch open, err := l.Unfinished(ctx); {
		case err != nil:
			return err
		case len(open) == 0:
			return nil
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// fillLog brings a ledger to where that of a daemon is after its first minutes: its
// write-ahead log has its full length, and a write does not make it longer.
func fillLog(ctx context.Context, l *ledger.Ledger, n int) error {
	for range n {
		if _, err := l.Enqueue(ctx, ledger.Request{Job: "fill", Agent: "a", Trigger: domain.TriggerAPI}); err != nil {
			return err
		}
	}
	return nil
}

// arrive drops a file; it returns when it was complete in its folder.
func (k dropKind) arrive(staging, inbox, name string, content []byte) (time.Time, error) {
	if !k.renamed {
		err := os.WriteFile(filepath.Join(inbox, name), content, 0o644)
		return time.Now(), err
	}

	path := filepath.Join(staging, name)
	// An old mtime: the watcher takes the file for complete and waits only for recheck.
	before := time.Now().Add(-time.Hour)
	if err := errors.Join(os.WriteFile(path, content, 0o644), os.Chtimes(path, before, before)); err != nil {
		return before, err
	}

	begin := time.Now()
	return begin, os.Rename(path, filepath.Join(inbox, name))
}

// hearRename is how long fsnotify takes to report a file that is renamed into a folder.
func hearRename(events *fsnotify.Watcher, staging, dir string, i int) (time.Duration, error) {
	path, dest := filepath.Join(staging, "heard"), filepath.Join(dir, fmt.Sprint(i))
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		return 0, err
	}

	begin := time.Now()
	if err := os.Rename(path, dest); err != nil {
		return 0, err
	}

	for {
		select {
		case e := <-events.Events:
			if e.Name == dest {
				return time.Since(begin), nil
			}
		case err := <-events.Errors:
			return 0, err
		}
	}
}
