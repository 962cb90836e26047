package watcher

import (
	"context"
	"time"

	"rouse/internal/ledger/claim"
	"rouse/watcher/tree"
)

// loadState reads from the ledger at which step the last watcher was, and goes on there.
func (f *folder) loadState(ctx context.Context) error {
	st, _, err := f.w.ledger.Watches.State(ctx, f.Job)
	if err != nil {
		return err
	}

	l := convergence{loaded: true, root: f.root, phase: StateIdle, idlePrint: st.Fingerprint}
	if st.Fingerprint != "" {
		mem, err := tree.Decode(st.Tree)
		if err != nil || mem.Shape.Root != f.root {
			// The path may lead elsewhere now, by a link or an edited configuration.
			f.w.log.Info("a folder starts from scratch: what was recorded is about another one", "job", f.Job, "path", f.Path, "error", err)
			st.Fingerprint, st.Round = "", 0
		} else if l.selectionChanged = !mem.Shape.Equal(f.selection()); mem.Left != "" {
			// After a failed run the folder waits for a change from what that run left.
			l.idlePrint = mem.Left
		}
	}

	st.Tree = "" // up to megabytes, read again when it is needed
	l.state = st
	if st.Fingerprint == "" {
		l.idlePrint = tree.Tree(nil).Fingerprint()
	} else if st.Run != 0 {
		if l.outcome, err = f.w.outcomeOf(ctx, st.Run); err != nil {
			return err
		}
		if !l.failed() {
			l.idlePrint = st.Fingerprint // mem.Left is about a failure that a retry has overtaken
		}
	}

	f.conv = l
	switch {
	case st.Fingerprint == "" || st.Run == 0:
	case l.outcome == "":
		f.setPhase(StateProcessing, time.Time{})
	case st.Round > 0:
		f.conv.runPredates = true
		f.setPhase(StateSettling, time.Now().Add(f.w.runSettle))
	}

	f.publishPhase()
	return nil
}

// loadSnapshot reads the recorded trees, and fits them to the watch if that selects other files
// now.
func (f *folder) loadSnapshot(ctx context.Context, cur tree.Tree) (tree.Snapshot, error) {
	if f.conv.state.Fingerprint == "" {
		return tree.Snapshot{}, nil
	}

	st, _, err := f.w.ledger.Watches.State(ctx, f.Job)
	if err != nil {
		return tree.Snapshot{}, err
	}

	mem, err := tree.Decode(st.Tree)
	if err != nil || !f.conv.selectionChanged {
		return mem, err
	}

	mem.ApplySelection(f.selection(), cur, f.Existing == ExistingProcess)
	f.conv.state.Fingerprint = mem.Last.Fingerprint()
	f.conv.idlePrint = f.conv.state.Fingerprint
	f.conv.selectionChanged = false

	return mem, f.saveSnapshot(ctx, mem, f.conv.state)
}

// saveSnapshot records the trees of the folder in the ledger.
func (f *folder) saveSnapshot(ctx context.Context, mem tree.Snapshot, st claim.WatchState) error {
	mem.Shape = f.selection()
	text, err := mem.Encode()
	if err != nil {
		return err
	}

	if st.Since.IsZero() {
		st.Since = time.Now()
	}

	st.Tree = text
	return f.writeUnlessStopped(func() error { return f.w.ledger.Watches.Save(ctx, st) })
}

// writeUnlessStopped writes unless the folder has been stopped: after a reload the state
// belongs to another folder of the same job.
func (f *folder) writeUnlessStopped(do func() error) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	if f.stopped {
		return context.Canceled
	}
	return do()
}

// selection returns the files that the watch selects.
func (f *folder) selection() tree.Selection {
	return tree.Selection{
		Root: f.root, Include: f.Include, Exclude: f.Exclude, Recursive: f.Recursive, Links: f.FollowSymlinks,
		Closed: f.nestedWatches, Exact: f.ExactCase,
	}
}
