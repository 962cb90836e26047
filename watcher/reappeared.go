package watcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"rouse/internal/ledger"
	"rouse/internal/ledger/claim"
	"rouse/watcher/settle"
)

// fileReappeared reports whether a file exists again with the bytes that failed. Such a file stays
// in place until the run is retried or the job is changed.
func (f *candidates) fileReappeared(ctx context.Context, c candidate, st claim.Status) (bool, error) {
	if !st.Outcome.Failed() || st.After == claim.AfterFailed {
		return false, nil
	}

	var notices []ledger.Notice
	if f.w.returnNotices != nil {
		notices = f.w.returnNotices(f.Job, c.Path, st.Run)
	}
	since, back, err := f.w.ledger.Claims.MarkReappeared(ctx, st, c.stamp.ModTime(), f.Definition, notices)
	if err != nil {
		if ctx.Err() == nil {
			f.w.log.Error("that a file is back after it failed could not be recorded; it is tried again", "job", f.Job, "path", c.Path, "error", err)
		}
		f.debouncer.Requeue(c.Pending, time.Now().Add(time.Second), c.stamp)
		return false, err
	}

	if back {
		f.reappeared[c.Path] = reappearedFile{settle.WaitingFile{Path: c.Path, Since: since, Run: st.Run, Why: BackText(st.Run)}, c.hash}
	}
	return back, nil
}

// reappearedFile is a file that waits because its bytes have failed before.
type reappearedFile struct {
	settle.WaitingFile
	hash string
}

// BackText returns the reason why a file waits after its run has failed.
func BackText(run int64) string {
	return fmt.Sprintf("the same bytes failed in run %d; they are tried again with rouse retry %[1]d, or once the job is changed", run)
}

// reviewBack drops the files that are gone or that were retried.
func (f *candidates) reviewBack(ctx context.Context) {
	for path, b := range f.reappeared {
		st, _, err := f.w.ledger.Claims.Of(ctx, f.Job, filepath.ToSlash(path), b.hash)
		if err != nil {
			return // the next scan tries again
		}

		_, gone := os.Lstat(path)
		waits := st.After == claim.AfterBack
		if waits && !errors.Is(gone, fs.ErrNotExist) {
			continue
		}
		delete(f.reappeared, path)
		if waits {
			if err := f.w.ledger.Claims.BackGone(ctx, st); err != nil && ctx.Err() == nil {
				f.w.log.Error("that a file has gone could not be recorded", "job", f.Job, "path", path, "error", err)
			}
		}
	}
}
