package watcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"rouse/internal/ledger/claim"
	"rouse/internal/nofollow"
	"rouse/watcher/fsys"
)

const (
	movers    = 8  // files that are moved concurrently
	maxProbes = 32 // files that one scan retries while moving fails
)

// ApplyAfterActions moves, deletes or leaves the files of finished runs, for a process that does not watch. watches holds the watches
// of all jobs. The files of a job without a watch are left where they are.
func ApplyAfterActions(ctx context.Context, o Options, watches []Watch) error {
	watches, err := validated(watches)
	if err != nil {
		return err
	}
	w := newWatcher(o)
	w.folders = w.foldersOf(watches)
	return w.applyAfterActions(ctx)
}

// applyAfterActions moves, deletes or leaves the files of runs that have finished.
func (w *Watcher) applyAfterActions(ctx context.Context) error {
	// Before the first Set no watch is known, and each file would be left for good.
	w.mu.Lock()
	known := w.folders != nil
	w.mu.Unlock()

	for limit := maxPerTx; known && ctx.Err() == nil; {
		due, err := w.ledger.Claims.PendingAfterMoves(ctx, limit)
		if err != nil {
			return err
		}
		read := len(due)
		due = w.own(due)
		if err := w.applyConcurrently(ctx, due); err != nil {
			return err
		}
		if read < limit {
			break
		}
		if len(due) == 0 { // those of other nodes come first
			limit *= 2
		}
	}

	return nil
}

// own are the files that are this node's to deal with.
func (w *Watcher) own(due []claim.Status) []claim.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(due, func(c claim.Status) bool { return w.folders[c.Job] == nil && w.elsewhere(c.Job) })
}

// applyConcurrently works on several files at a time, so that the ledger commits their results
// together.
func (w *Watcher) applyConcurrently(ctx context.Context, due []claim.Status) error {
	errs := make([]error, min(movers, len(due)))
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() {
			for j := i; j < len(due) && errs[i] == nil; j += movers {
				errs[i] = w.applyAfterAction(ctx, due[j])
			}
		})
	}

	group.Wait()
	return errors.Join(errs...)
}

// applyAfterAction deals with one file. It may be called again for the same one, after a crash
// between the move and its record.
func (w *Watcher) applyAfterAction(ctx context.Context, c claim.Status) error {
	w.mu.Lock()
	f := w.folders[c.Job]
	w.mu.Unlock()
	if f == nil {
		state := claim.AfterLeft
		if c.Outcome == "" {
			state = claim.AfterNone
		}
		_, err := w.ledger.Claims.FinishAfterMove(ctx, c, state, c.Dest, "")
		return err
	}

	state, dest, note, failure := w.moveOrDelete(ctx, &f.Watch, c)
	if err := ctx.Err(); err != nil {
		return err
	}
	if ended, err := w.ledger.Claims.FinishAfterMove(ctx, c, state, dest, note); err != nil || !ended {
		return err // not ended: the run was retried meanwhile, so another outcome decides
	}

	if !f.noteAfterAction(filepath.FromSlash(c.Path), failure) {
		return nil
	}

	w.log.Warn("a file could not be dealt with after its run; it is tried again at the next scan", "job", c.Job, "run", c.Run, "path", c.Path, "error", failure)
	if _, ok := errors.AsType[*nofollow.LinkError](failure); ok {
		f.event(ctx, linkKind, c.Run, map[string]any{"path": c.Path, "error": note})
	}
	return nil
}

const changedSince = "the file has changed since its run; it stays, as a new one"

// moveOrDelete does what the watch wants for a file, and says what became of it; failure, when it
// could not be done.
func (w *Watcher) moveOrDelete(ctx context.Context, watch *Watch, c claim.Status) (state, dest, note string, failure error) {
	after := watch.OnFailure
	if c.Outcome.Done() {
		after = watch.OnSuccess
	}

	g, err := openRoots(watch)
	switch {
	case err != nil && c.Outcome == "":
		return claim.AfterNone, c.Dest, "", nil // its run says what is wrong with the folder
	case err != nil:
		return claim.AfterFailed, "", err.Error(), err
	}
	defer g.close()

	if c.Outcome == "" {
		return claim.AfterNone, w.placeOf(ctx, g, c), "", nil
	}

	if after.Action == "" || after.Action == actionLeave || !g.contains(filepath.FromSlash(c.Path)) {
		return claim.AfterLeft, "", "", nil // a file that its owner named, from another folder, stays there
	}

	// A file that is gone has been dealt with: by somebody else, or by a delete that a crash
	// kept from being recorded.
	file, st, err := w.locate(ctx, g, c)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return claim.AfterDone, "", "the file was gone", nil
	case err == nil && after.Action == actionDelete:
		err = deleteFile(file, st, file.Sibling(deletingName(c)))
	case err == nil:
		dest, err = w.moveTo(ctx, g, c, file, st, after)
	}

	switch {
	case errors.Is(err, fsys.ErrChanged):
		// Other bytes are another file, which gets a run of its own.
		return claim.AfterDone, "", changedSince, nil
	case err != nil:
		return claim.AfterFailed, "", err.Error(), err
	}

	return claim.AfterDone, dest, "", nil
}

// placeOf is where the file of a run lies that was retried before it was recorded what became of it: "" when it is still
// at its path, or nowhere.
func (w *Watcher) placeOf(ctx context.Context, g *allowedRoots, c claim.Status) string {
	path := filepath.FromSlash(c.Path)
	if !g.contains(path) {
		return c.Dest
	}

	file, _, err := w.locate(ctx, g, c)
	if err != nil || file.Path() == path {
		return ""
	}
	return file.Path()
}

// deletingName is the name that a file has while it is deleted. It is hidden, so that no scan
// takes the file for a new one.
func deletingName(c claim.Status) string { return fmt.Sprintf(".deleting-%d", c.ID) }

// moveTo moves a file into a folder, and says where it lies then. Where the same content came before and still lies
// there, the second one is removed: what is put back again and again fills no folder with copies.
func (w *Watcher) moveTo(ctx context.Context, g *allowedRoots, c claim.Status, file fsys.Handle, st fsys.Stamp, after After) (string, error) {
	to, name, err := w.destination(ctx, after, c)
	if err != nil {
		return "", err
	}
	dir, err := g.openDestination(after.Dir, to, true)
	if err != nil {
		if _, ok := errors.AsType[*nofollow.LinkError](err); ok {
			return "", fmt.Errorf("cannot move the file to %s: %w", filepath.Join(after.Dir, to), err)
		}
		return "", fmt.Errorf("the folder %s cannot be created, or a link leads out of the watched folder: %w", filepath.Join(after.Dir, to), err)
	}
	if filepath.Dir(file.Path()) == dir.Name() {
		return file.Path(), nil // it was moved there after an earlier try
	}

	if c.Dest != "" && filepath.Dir(c.Dest) == dir.Name() {
		if _, err := w.stampOfClaimed(ctx, fsys.Handle{Root: dir, Name: filepath.Base(c.Dest)}, c); err == nil {
			return c.Dest, deleteFile(file, st, file.Sibling(deletingName(c)))
		}
	}
	return w.move(ctx, file, st, dir, name)
}

// locate finds the content of a claim: at its path or, when its run was retried, where the
// action after the earlier try put it. The error is ErrChanged when there is other content at
// the path, and the claimed one is nowhere.
func (w *Watcher) locate(ctx context.Context, g *allowedRoots, c claim.Status) (fsys.Handle, fsys.Stamp, error) {
	path := filepath.FromSlash(c.Path)
	missing := fs.ErrNotExist
	places := []string{path, c.Dest, filepath.Join(filepath.Dir(path), deletingName(c))}
	for _, place := range places {
		if place == "" {
			continue
		}

		file, err := g.handle(place)
		var st fsys.Stamp
		if err == nil {
			st, err = w.stampOfClaimed(ctx, file, c)
		}

		switch {
		case errors.Is(err, fsys.ErrChanged):
			missing = err
		case !fsys.IsNotExist(err):
			return file, st, err
		}
	}

	// A crash between a move and its record leaves no destination in the claim.
	for _, after := range []After{g.watch.OnFailure, g.watch.OnSuccess} {
		if after.Action == actionMove && c.Dest == "" {
			if file, st, err := w.findUnrecordedMove(ctx, g, after, c); err == nil {
				return file, st, nil
			}
		}
	}

	return fsys.Handle{}, fsys.Stamp{}, missing
}

// stampOfClaimed is the stamp of a file that still has the claimed content; ErrChanged when it
// has another.
func (w *Watcher) stampOfClaimed(ctx context.Context, file fsys.Handle, c claim.Status) (fsys.Stamp, error) {
	info, err := file.Lstat()
	if err != nil {
		return fsys.Stamp{}, err
	}

	st := fsys.StampOf(info)
	if st.Size != c.Size {
		return st, fsys.ErrChanged // without reading it
	}

	hash, err := w.hashes.Of(ctx, file, st)
	if err == nil && hash != c.Hash {
		err = fsys.ErrChanged
	}

	return st, err
}

// findUnrecordedMove looks for a file where a move would have put it whose record was lost.
func (w *Watcher) findUnrecordedMove(ctx context.Context, g *allowedRoots, after After, c claim.Status) (fsys.Handle, fsys.Stamp, error) {
	to, name, err := w.destination(ctx, after, c)
	if err != nil {
		return fsys.Handle{}, fsys.Stamp{}, err
	}
	root, err := g.openDestination(after.Dir, to, false)
	if err != nil {
		return fsys.Handle{}, fsys.Stamp{}, err
	}

	// The first free name ends the search: the move would have used it.
	for i := range 100 {
		file := fsys.Handle{Root: root, Name: numbered(name, i)}
		st, err := w.stampOfClaimed(ctx, file, c)
		if !errors.Is(err, fsys.ErrChanged) {
			return file, st, err
		}
	}

	return fsys.Handle{}, fsys.Stamp{}, fs.ErrNotExist
}

// noteAfterAction remembers why a file could not be moved, for its owner and for the next scan, and
// says whether that is news. A success (failure is nil) shows that the others are worth another try at
// once.
func (f *folder) noteAfterAction(path string, failure error) (news bool) {
	why := ""
	if failure != nil {
		why = failure.Error()
	}

	f.mu.Lock()
	news = why != "" && why != f.moveFailure
	f.moveFailure = why
	if why != "" {
		f.moveErrors[path] = why
		f.toRetry[path] = true
	} else {
		delete(f.moveErrors, path)
		delete(f.toRetry, path)
	}

	again := why == "" && len(f.toRetry) > 0
	f.mu.Unlock()
	if again {
		f.requestScan("files can be moved again")
	}
	return news
}

// nextRetries are known files that a scan has to look at again: all whose move has failed or,
// while moving fails, a few.
func (f *folder) nextRetries() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.moveFailure == "" {
		out := f.toRetry
		f.toRetry = map[string]bool{}
		return out
	}

	// A full disk must not make each scan hash and move thousands of files in vain.
	out := map[string]bool{}
	for path := range f.toRetry {
		if len(out) == maxProbes {
			break
		}
		out[path] = true
		delete(f.toRetry, path)
	}

	return out
}

// retryAll has the next scan that can look into the folder look again at all files whose move has failed.
func (f *folder) retryAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for path := range f.moveErrors {
		f.toRetry[path] = true
	}
}

// forgetVanished drops the move errors of files that a scan did not find any more.
func (f *folder) forgetVanished(retried map[string]bool, walk *walk) {
	if len(retried) == 0 {
		return
	}

	there := make(map[string]bool, len(walk.files))
	for _, s := range walk.files {
		there[s.Path] = true
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	for path := range retried {
		if !there[path] {
			delete(f.moveErrors, path)
		}
	}
}
