package watcher

import (
	"context"
	"time"

	"rouse/internal/ledger"
)

// loadState reads from the ledger at which step the last watcher was, and goes on there.
func (f *folder) loadState(ctx context.Context) error {
	st, _, err := f.w.ledger.WatchState(ctx, f.Job)
	if err != nil {
		return err
	}

	l := convergence{loaded: true, root: f.root, phase: StateIdle, idlePrint: st.Fingerprint}
	if st.Fingerprint != "" {
		mem, err := decodeMemory(st.Tree)
		if err != nil || mem.Shape.Root != f.root {
			// The path may lead elsewhere now, by a link or an edited configuration.
			f.w.log.Info("a folder starts from scratch: what was recorded is about another one", "job", f.Job, "path", f.Path, "error", err)
			st.Fingerprint, st.Round = "", 0
		} else if l.shapeChanged = !mem.Shape.equal(f.shape()); mem.Left != "" {
			// After a failed run the folder waits for a change from what that run left.
			l.idlePrint = mem.Left
		}
	}

	st.Tree = "" // up to megabytes, read again when it is needed
	l.state = st
	if st.Fingerprint == "" {
		l.idlePrint = tree(nil).fingerprint()
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

// loadMemory reads the recorded trees, and fits them to the watch if that selects other files
// now.
func (f *folder) loadMemory(ctx context.Context, cur tree) (memory, error) {
	if f.conv.state.Fingerprint == "" {
		return memory{}, nil
	}

	st, _, err := f.w.ledger.WatchState(ctx, f.Job)
	if err != nil {
		return memory{}, err
	}

	mem, err := decodeMemory(st.Tree)
	if err != nil || !f.conv.shapeChanged {
		return mem, err
	}

	mem.refit(f, cur)
	f.conv.state.Fingerprint = mem.Last.fingerprint()
	f.conv.idlePrint = f.conv.state.Fingerprint
	f.conv.shapeChanged = false

	return mem, f.saveMemory(ctx, mem, f.conv.state)
}

// saveMemory records the trees of the folder in the ledger.
func (f *folder) saveMemory(ctx context.Context, mem memory, st ledger.WatchState) error {
	mem.Shape = f.shape()
	text, err := mem.encode()
	if err != nil {
		return err
	}

	if st.Since.IsZero() {
		st.Since = time.Now()
	}

	st.Tree = text
	return f.writeUnlessStopped(func() error { return f.w.ledger.SaveWatchStates(ctx, st) })
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
