package watcher

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"rouse/agentdb/ledger"
)

const (
	movers     = 8                     // files that are moved at the same time
	followPace = 10 * time.Millisecond // least time between two looks at the ledger
	maxProbes  = 32                    // files that are tried again while moving fails
)

// follow carries out what is due to files whose run has finished, whenever the ledger changes.
func (w *Watcher) follow(ctx context.Context) {
	for {
		changed := w.ledger.Changed()
		var again <-chan time.Time
		if err := w.finishAfters(ctx); err != nil && ctx.Err() == nil {
			w.log.Error("what is due to the files of finished runs is not settled; it is tried again", "error", err)
			again = time.After(time.Second)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-w.reset:
		case <-again:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(followPace):
		}
	}
}

func (w *Watcher) finishAfters(ctx context.Context) error {
	w.mu.Lock()
	known := w.folders != nil
	w.mu.Unlock()
	for known && ctx.Err() == nil {
		due, err := w.ledger.PendingAfter(ctx, batch)
		if err != nil {
			return err
		}
		if err := w.finishEach(ctx, due); err != nil {
			return err
		}
		if len(due) < batch {
			break
		}
	}
	return nil
}

// finishEach lets the ledger commit what becomes of several files together.
func (w *Watcher) finishEach(ctx context.Context, due []ledger.ClaimStatus) error {
	errs := make([]error, min(movers, len(due)))
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() {
			for j := i; j < len(due) && errs[i] == nil; j += movers {
				errs[i] = w.finishAfter(ctx, due[j])
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// finishAfter may be called again after a crash between the deed and its record.
func (w *Watcher) finishAfter(ctx context.Context, c ledger.ClaimStatus) error {
	w.mu.Lock()
	f := w.folders[c.Job]
	w.mu.Unlock()
	if f == nil {
		return w.ledger.FinishAfter(ctx, c, ledger.AfterLeft, "", "")
	}
	state, dest, note := w.dispose(ctx, &f.Watch, c)
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := w.ledger.FinishAfter(ctx, c, state, dest, note); err != nil {
		return err
	}
	failed := state == ledger.AfterFailed
	if failed {
		w.log.Warn("a file could not be dealt with after its run; it is tried again at the next scan", "job", c.Job, "run", c.Run, "path", c.Path, "error", note)
	}
	f.disposed(filepath.FromSlash(c.Path), failed)
	return nil
}

// dispose does to a file what its watch says, and says what became of it.
func (w *Watcher) dispose(ctx context.Context, watch *Watch, c ledger.ClaimStatus) (state, dest, note string) {
	after := watch.OnFailure
	if c.Outcome.Done() {
		after = watch.OnSuccess
	}
	path := filepath.FromSlash(c.Path)
	if _, ours := inside(resolved(watch.Path), path); !ours || after.Action == "" || after.Action == actionLeave {
		return ledger.AfterLeft, "", "" // a file that was offered from elsewhere stays there
	}
	source, st, err := w.find(ctx, c)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if after.Action == actionMove {
			dest = w.movedBefore(ctx, after.Dir, c)
		}
		return ledger.AfterDone, dest, "the file was gone"
	case errors.Is(err, errChanged):
		// Other bytes are another file, which gets a run of its own.
		return ledger.AfterDone, "", "the file has changed since its run; it stays, as a new one"
	case err != nil:
		return ledger.AfterFailed, "", err.Error()
	case after.Action == actionDelete:
		err = os.Remove(source)
	case filepath.Dir(source) == filepath.Clean(after.Dir):
		dest = source
	default:
		dest, err = w.move(ctx, source, st, after.Dir)
	}
	switch {
	case errors.Is(err, errChanged):
		return ledger.AfterDone, "", "the file has changed since its run; it stays, as a new one"
	case err != nil:
		return ledger.AfterFailed, "", err.Error()
	}
	return ledger.AfterDone, dest, ""
}

// find is where the bytes of a claim are: at its path or, when its run was retried, where
// the earlier try had it put. errChanged when there are others at its path.
func (w *Watcher) find(ctx context.Context, c ledger.ClaimStatus) (string, stamp, error) {
	places := []string{filepath.FromSlash(c.Path)}
	if c.Dest != "" {
		places = append(places, c.Dest)
	}
	missing := fs.ErrNotExist
	for _, path := range places {
		info, err := os.Lstat(path)
		if err != nil {
			missing = err
			continue
		}
		st := stampOf(info)
		hash, err := w.hashes.of(ctx, path, st)
		if err == nil && hash != c.Hash {
			err = errChanged
		}
		return path, st, err
	}
	return "", stamp{}, missing
}

// movedBefore looks for a file where a move that was not recorded would have put it.
func (w *Watcher) movedBefore(ctx context.Context, dir string, c ledger.ClaimStatus) string {
	for i := range 100 {
		dest := numbered(dir, filepath.Base(filepath.FromSlash(c.Path)), i)
		info, err := os.Lstat(dest)
		if err != nil {
			return ""
		}
		if info.Size() != c.Size {
			continue
		}
		if hash, err := w.hashes.of(ctx, dest, stampOf(info)); err == nil && hash == c.Hash {
			return dest
		}
	}
	return ""
}

// disposed remembers a file that could not be moved away, for the next scan. One that
// could be shows that the others are worth another try at once.
func (f *folder) disposed(path string, failed bool) {
	f.mu.Lock()
	f.stuck = failed
	if failed {
		f.retry[path] = true
	} else {
		delete(f.retry, path)
	}
	again := !failed && len(f.retry) > 0
	f.mu.Unlock()
	if again {
		f.askScan("files can be moved again")
	}
}

// takeRetries are files that a scan looks at although it knows them: all of them or, while
// moving fails, a few.
func (f *folder) takeRetries() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.stuck {
		out := f.retry
		f.retry = map[string]bool{}
		return out
	}
	out := map[string]bool{}
	for path := range f.retry {
		if len(out) == maxProbes {
			break
		}
		out[path] = true
		delete(f.retry, path)
	}
	return out
}
