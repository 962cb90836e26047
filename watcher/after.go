package watcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"rouse/agentdb/ledger"
)

// finishAfters carries out what is due to files whose run has finished.
func (w *Watcher) finishAfters(ctx context.Context) {
	for ctx.Err() == nil {
		due, err := w.ledger.PendingAfter(ctx, batch)
		if err != nil {
			if ctx.Err() == nil {
				w.log.Error("the files of finished runs could not be read", "error", err)
			}
			return
		}
		acted := 0
		for _, c := range due {
			w.mu.Lock()
			e := w.watches[c.Job]
			w.mu.Unlock()
			state, dest, why := ledger.AfterLeft, "", ""
			if e != nil {
				state, dest, why = finishOne(e.Watch, c)
			}
			if err := w.ledger.FinishAfter(ctx, c, state, dest, why); err != nil {
				if ctx.Err() == nil {
					w.log.Error("what became of a file could not be recorded; it is tried again", "path", c.Path, "error", err)
				}
				return
			}
			if state == ledger.AfterFailed {
				w.log.Warn("a file could not be moved after its run", "job", c.Job, "path", c.Path, "error", why)
			}
			acted++
		}
		if acted < batch {
			return
		}
	}
}

// finishOne does to a file what its watch says. It may be called again after a crash
// between the deed and its record.
func finishOne(w Watch, c ledger.ClaimStatus) (state, dest, why string) {
	after := w.OnFailure
	if c.Outcome.Done() {
		after = w.OnSuccess
	}
	path := filepath.FromSlash(c.Path)
	if after.Action == "" || after.Action == "leave" {
		return ledger.AfterLeft, "", ""
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ledger.AfterDone, moved(after, path, c.Hash), "the file was gone"
	}
	if err != nil {
		return ledger.AfterFailed, "", err.Error()
	}
	// Other bytes are another file, which gets a run of its own.
	if hash, err := hashFile(path, stampOf(info)); err != nil || hash != c.Hash {
		if err != nil && !errors.Is(err, errChanged) {
			return ledger.AfterFailed, "", err.Error()
		}
		return ledger.AfterDone, "", "the file has changed since; it stays, as a new one"
	}
	if after.Action == "delete" {
		if err := os.Remove(path); err != nil {
			return ledger.AfterFailed, "", err.Error()
		}
		return ledger.AfterDone, "", ""
	}
	if dest, err = move(path, after.Dir); err != nil {
		return ledger.AfterFailed, "", err.Error()
	}
	return ledger.AfterDone, dest, ""
}

// moved looks for a file where an earlier, unrecorded move would have put it.
func moved(after After, path, hash string) string {
	if after.Action != "move" {
		return ""
	}
	for i := range 100 {
		dest := numbered(after.Dir, filepath.Base(path), i)
		info, err := os.Lstat(dest)
		if err != nil {
			return ""
		}
		if h, err := hashFile(dest, stampOf(info)); err == nil && h == hash {
			return dest
		}
	}
	return ""
}

// numbered is name in dir, the second and later ones with a number: a.csv, a-2.csv, …
func numbered(dir, name string, i int) string {
	if i > 0 {
		ext := filepath.Ext(name)
		name = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(name, ext), i+1, ext)
	}
	return filepath.Join(dir, name)
}

// move renames a file into a folder under a name that is free; across file systems it is
// copied, made durable, and then removed.
func move(path, dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("the folder %s cannot be made: %w", dir, err)
	}
	for i := range 10_000 {
		dest := numbered(dir, filepath.Base(path), i)
		// A link takes a name only if it is free, which a rename does not promise.
		err := os.Link(path, dest)
		switch {
		case err == nil:
			return dest, os.Remove(path)
		case errors.Is(err, fs.ErrExist):
			continue
		}
		if _, err := os.Lstat(dest); err == nil {
			continue
		}
		if err := os.Rename(path, dest); err == nil {
			return dest, nil
		}
		return dest, copyAway(path, dest)
	}
	return "", fmt.Errorf("%s holds ten thousand files of the name %s", dir, filepath.Base(path))
}

func copyAway(path, dest string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(dest, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		return errors.Join(fmt.Errorf("copying to %s: %w", dest, err), os.Remove(dest))
	}
	return os.Remove(path)
}
