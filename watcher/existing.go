package watcher

import (
	"context"
	"slices"

	"rouse/internal/ledger/claim"
	"rouse/watcher/fsys"
	"rouse/watcher/tree"
)

// preexisting holds the files that were in a folder when its job began to watch it, for a watch
// with existing: ignore. A file is identified by its path, size and modification time. The time
// alone is not enough: a folder that is moved in contains files that are older than the job.
type preexisting struct {
	root  string // root of the folder; "" until files is loaded
	files map[fsys.Key]struct{}
}

// isPreexisting reports whether a file existed before the job and has not changed since.
func (f *candidates) isPreexisting(path string, st fsys.Stamp) bool {
	if len(f.preexisting.files) == 0 {
		return false
	}
	_, ok := f.preexisting.files[f.stampHasher.Of(path, fsys.Stamp{Size: st.Size, Modified: st.Modified})]
	return ok
}

// skipPreexisting removes the files that existed before the job from a walk. The first scan of a
// folder records these files. walk is nil if the folder is missing.
func (f *candidates) skipPreexisting(ctx context.Context, walk *walk) error {
	if f.Existing != ExistingIgnore || f.Mode == ModeConverge || f.preexisting.root == f.root {
		return nil
	}

	st, _, err := f.w.ledger.Watches.State(ctx, f.Job)
	if err != nil {
		return err
	}

	mem, known := f.loadPreexisting(st)
	var cur tree.Tree
	switch {
	case walk != nil:
		cur = tree.New(f.root, walk.files)
	case known:
		return nil // the folder is missing now; the list stays for its return
	}

	switch {
	case !known:
		mem = tree.Snapshot{Last: cur}
		if err := f.saveSnapshot(ctx, mem, claim.WatchState{Job: f.Job}); err != nil {
			return err
		}
		f.event(ctx, "watch.baseline", 0, map[string]any{"path": f.Path, "files": len(cur)})
	case !mem.Shape.Equal(f.selection()):
		mem.ApplySelection(f.selection(), cur, f.Existing == ExistingProcess)
		if err := f.saveSnapshot(ctx, mem, st); err != nil {
			return err
		}
	}

	f.preexisting = preexisting{root: f.root, files: make(map[fsys.Key]struct{}, len(mem.Last))}
	for _, l := range mem.Last {
		f.preexisting.files[f.stampHasher.Of(fsys.JoinPath(f.root, l.Path), fsys.Stamp{Size: l.Size, Modified: l.Modified})] = struct{}{}
	}

	if walk != nil {
		walk.files = slices.DeleteFunc(walk.files, func(s tree.Sighting) bool { return f.isPreexisting(s.Path, s.Stamp) })
	}

	return nil
}

// loadPreexisting decodes the files that existed before the job. It returns false if none are
// recorded for this folder.
func (p *place) loadPreexisting(st claim.WatchState) (tree.Snapshot, bool) {
	if st.Tree == "" || st.Fingerprint != "" { // a fingerprint means that it was recorded in mode converge
		return tree.Snapshot{}, false
	}

	mem, err := tree.Decode(st.Tree)
	if err != nil || mem.Shape.Root != p.root {
		p.w.log.Info("a folder starts from scratch: what was recorded is about another one", "job", p.Job, "path", p.Path, "error", err)
		return tree.Snapshot{}, false
	}
	return mem, true
}
