package watcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"syscall"

	"rouse/agentdb/ledger"
)

const (
	movers    = 8  // files that are moved at the same time
	maxProbes = 32 // files that are tried again while moving fails
)

// applyAfterActions carries out what is due to the files of runs that have finished.
func (w *Watcher) applyAfterActions(ctx context.Context) error {
	w.mu.Lock()
	known := w.folders != nil
	w.mu.Unlock()

	for known && ctx.Err() == nil {
		due, err := w.ledger.PendingAfter(ctx, maxPerTx)
		if err != nil {
			return err
		}
		if err := w.applyConcurrently(ctx, due); err != nil {
			return err
		}
		if len(due) < maxPerTx {
			break
		}
	}

	return nil
}

// applyConcurrently lets the ledger commit what becomes of several files together.
func (w *Watcher) applyConcurrently(ctx context.Context, due []ledger.ClaimStatus) error {
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

// applyAfterAction may be called again after a crash between the deed and its record.
func (w *Watcher) applyAfterAction(ctx context.Context, c ledger.ClaimStatus) error {
	w.mu.Lock()
	f := w.folders[c.Job]
	w.mu.Unlock()
	if f == nil {
		_, err := w.ledger.EndAfter(ctx, c, ledger.AfterLeft, "", "")
		return err
	}

	state, dest, note := w.moveOrDelete(ctx, &f.Watch, c)
	if err := ctx.Err(); err != nil {
		return err
	}
	if ended, err := w.ledger.EndAfter(ctx, c, state, dest, note); err != nil || !ended {
		return err // tried again meanwhile, its run has had another outcome, or will have
	}

	why := ""
	if state == ledger.AfterFailed {
		why = note
		w.log.Warn("a file could not be dealt with after its run; it is tried again at the next scan", "job", c.Job, "run", c.Run, "path", c.Path, "error", note)
	}

	f.noteAfterAction(filepath.FromSlash(c.Path), why)
	return nil
}

const changedSince = "the file has changed since its run; it stays, as a new one"

// moveOrDelete does to a file what its watch says, and says what became of it.
func (w *Watcher) moveOrDelete(ctx context.Context, watch *Watch, c ledger.ClaimStatus) (state, dest, note string) {
	after := watch.OnFailure
	if c.Outcome.Done() {
		after = watch.OnSuccess
	}

	g, err := openRoots(watch)
	if err != nil {
		return ledger.AfterFailed, "", err.Error()
	}
	defer g.close()

	if after.Action == "" || after.Action == actionLeave || !g.contains(filepath.FromSlash(c.Path)) {
		return ledger.AfterLeft, "", "" // a file that was offered from elsewhere stays there
	}

	file, st, err := w.locate(ctx, g, c)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ledger.AfterDone, "", "the file was gone"
	case err == nil && after.Action == actionDelete:
		err = deleteFile(file, st, file.sibling(deletingName(c)))
	case err == nil:
		dest, err = w.moveTo(ctx, g, file, st, after.Dir, filepath.Base(filepath.FromSlash(c.Path)))
	}

	switch {
	case errors.Is(err, errChanged):
		// Other bytes are another file, which gets a run of its own.
		return ledger.AfterDone, "", changedSince
	case err != nil:
		return ledger.AfterFailed, "", err.Error()
	}

	return ledger.AfterDone, dest, ""
}

// deletingName is the name that a file has while it is deleted.
func deletingName(c ledger.ClaimStatus) string { return fmt.Sprintf(".deleting-%d", c.ID) }

func (w *Watcher) moveTo(ctx context.Context, g *allowedRoots, file fileHandle, st stamp, to, name string) (string, error) {
	dir, err := g.openDir(to, true)
	if err != nil {
		return "", fmt.Errorf("the folder %s cannot be made, or leads out of the watched one by a link: %w", to, err)
	}
	if filepath.Dir(file.path()) == dir.Name() {
		return file.path(), nil // it was moved there after an earlier try
	}
	return w.move(ctx, file, st, dir, name)
}

// locate is where the bytes of a claim are: at its path or, when its run was tried before, where
// that try had it put. errChanged when there are others at its path, and they are nowhere.
func (w *Watcher) locate(ctx context.Context, g *allowedRoots, c ledger.ClaimStatus) (fileHandle, stamp, error) {
	path := filepath.FromSlash(c.Path)
	missing := fs.ErrNotExist
	places := []string{path, c.Dest, filepath.Join(filepath.Dir(path), deletingName(c))}
	for _, place := range places {
		if place == "" {
			continue
		}

		file, err := g.handle(place)
		var st stamp
		if err == nil {
			st, err = w.stampOfClaimed(ctx, file, c)
		}

		switch {
		case errors.Is(err, errChanged):
			missing = err
		case !isNotExist(err):
			return file, st, err
		}
	}

	for _, after := range []After{g.watch.OnFailure, g.watch.OnSuccess} {
		if after.Action == actionMove && c.Dest == "" {
			if file, st, err := w.findUnrecordedMove(ctx, g, after.Dir, c); err == nil {
				return file, st, nil
			}
		}
	}

	return fileHandle{}, stamp{}, missing
}

// isNotExist says whether an error is that there is no such file, or no folder for it.
func isNotExist(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// stampOfClaimed is what the file looks like that was claimed; errChanged when it is another.
func (w *Watcher) stampOfClaimed(ctx context.Context, file fileHandle, c ledger.ClaimStatus) (stamp, error) {
	info, err := file.lstat()
	if err != nil {
		return stamp{}, err
	}

	st := stampOf(info)
	if st.size != c.Size {
		return st, errChanged
	}

	hash, err := w.hashes.of(ctx, file, st)
	if err == nil && hash != c.Hash {
		err = errChanged
	}

	return st, err
}

// findUnrecordedMove looks for a file where a move would have put it that nobody could record.
func (w *Watcher) findUnrecordedMove(ctx context.Context, g *allowedRoots, dir string, c ledger.ClaimStatus) (fileHandle, stamp, error) {
	root, err := g.openDir(dir, false)
	if err != nil {
		return fileHandle{}, stamp{}, err
	}

	for i := range 100 {
		file := fileHandle{root, numbered(filepath.Base(filepath.FromSlash(c.Path)), i)}
		st, err := w.stampOfClaimed(ctx, file, c)
		if !errors.Is(err, errChanged) {
			return file, st, err
		}
	}

	return fileHandle{}, stamp{}, fs.ErrNotExist
}

// noteAfterAction remembers a file that could not be moved away, and why, for its owner and for the next
// scan. One that could be (why is "") shows that the others are worth another try at once.
func (f *folder) noteAfterAction(path, why string) {
	f.mu.Lock()
	f.moveFailing = why != ""
	if f.moveFailing {
		f.moveErrors[path] = why
		f.toRetry[path] = true
	} else {
		delete(f.moveErrors, path)
		delete(f.toRetry, path)
	}

	again := !f.moveFailing && len(f.toRetry) > 0
	f.mu.Unlock()
	if again {
		f.requestScan("files can be moved again")
	}
}

// nextRetries are files that a scan looks at although it knows them: all of them or, while
// moving fails, a few.
func (f *folder) nextRetries() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	if !f.moveFailing {
		out := f.toRetry
		f.toRetry = map[string]bool{}
		return out
	}

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

// forgetVanished forgets that files could not be moved which a scan does not find any more.
func (f *folder) forgetVanished(retried map[string]bool, walk *walk) {
	if len(retried) == 0 {
		return
	}

	there := make(map[string]bool, len(walk.files))
	for _, s := range walk.files {
		there[s.path] = true
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	for path := range retried {
		if !there[path] {
			delete(f.moveErrors, path)
		}
	}
}
