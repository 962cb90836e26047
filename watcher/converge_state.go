package watcher

import (
	"context"
	"time"

	"rouse/watcher/tree"
)

// loadState reads the state of the last watcher from the ledger and continues there.
func (l *loop) loadState(ctx context.Context) error {
	st, _, err := l.w.ledger.Watches.State(ctx, l.Job)
	if err != nil {
		return err
	}

	conv := convergence{loaded: true, root: l.root, phase: StateIdle, idlePrint: st.Fingerprint}
	if st.Fingerprint != "" {
		mem, err := tree.Decode(st.Tree)
		if err != nil || mem.Shape.Root != l.root {
			// A link or an edited configuration may lead to another folder now.
			l.w.log.Info("a folder starts from scratch: what was recorded is about another one", "job", l.Job, "path", l.Path, "error", err)
			st.Fingerprint, st.Round = "", 0
		} else if conv.selectionChanged = !mem.Shape.Equal(l.selection()); mem.Left != "" {
			// After a failed run the folder waits for a change of the state which that run left.
			conv.idlePrint = mem.Left
		}
	}

	st.Tree = "" // may be several megabytes; read again when needed
	conv.state = st
	if st.Fingerprint == "" {
		conv.idlePrint = tree.Tree(nil).Fingerprint()
	} else if st.Run != 0 {
		if conv.outcome, err = l.w.outcomeOf(ctx, st.Run); err != nil {
			return err
		}
		if !conv.failed() {
			conv.idlePrint = st.Fingerprint // mem.Left belongs to a failure that was retried since
		}
	}

	l.conv = conv
	switch {
	case st.Fingerprint == "" || st.Run == 0:
	case conv.outcome == "":
		l.setPhase(StateProcessing, time.Time{})
	case st.Round > 0:
		l.conv.runPredates = true
		l.setPhase(StateSettling, time.Now().Add(l.w.runSettle))
	}

	l.publishPhase()
	return nil
}

// loadSnapshot reads the recorded trees. If the watch has been changed to select other files, it
// adapts the trees to the new selection.
func (l *loop) loadSnapshot(ctx context.Context, cur tree.Tree) (tree.Snapshot, error) {
	if l.conv.state.Fingerprint == "" {
		return tree.Snapshot{}, nil
	}

	st, _, err := l.w.ledger.Watches.State(ctx, l.Job)
	if err != nil {
		return tree.Snapshot{}, err
	}

	mem, err := tree.Decode(st.Tree)
	if err != nil || !l.conv.selectionChanged {
		return mem, err
	}

	mem.ApplySelection(l.selection(), cur, l.Existing == ExistingProcess)
	l.conv.state.Fingerprint = mem.Last.Fingerprint()
	l.conv.idlePrint = l.conv.state.Fingerprint
	l.conv.selectionChanged = false

	return mem, l.saveSnapshot(ctx, mem, l.conv.state)
}
