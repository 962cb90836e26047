package watcher

import (
	"context"
	"path/filepath"
	"time"
)

const (
	// maxEarly is how many files are looked at early; where more are due at about the same time, none is: that is a burst,
	// whose files are taken together.
	maxEarly = 4
	// maxPrecise is how long at most a folder waits in the system itself, where nothing wakes it.
	maxPrecise = 2 * time.Millisecond
)

// earlyLook is what is known of a file before its window ends.
type earlyLook struct {
	done      bool
	unclaimed string // the hash of a content of it that had no claim; "" where that is not known
}

// earlyBy is how long before the end of its window a file of a size is looked at: as long as that takes on a slow
// processor, and the millisecond by which a timer may be late.
func earlyBy(size int64) time.Duration {
	const open, perByte = 3 * time.Millisecond, 2 * time.Nanosecond
	return open + time.Duration(size)*perByte
}

// lookEarly reads files whose windows are about to end, so that this is done by then. Nothing is decided: once its window is
// over, a file is looked at again, and what was read counts only if it looks as it did (see hashes).
func (f *folder) lookEarly(ctx context.Context) {
	now := time.Now()
	for _, it := range f.toLookAtEarly() {
		if now.Before(it.due.Add(-earlyBy(it.last.size))) {
			continue
		}

		it.early.done = true
		if hash, ok := f.readEarly(ctx, it); ok {
			it.early.unclaimed = hash
		}
	}
}

// readEarly is the hash of a file that has no claim. What is wrong with one shows again when its window is over.
func (f *folder) readEarly(ctx context.Context, it *pendingFile) (string, bool) {
	root, err := f.openRoot()
	if err != nil {
		return "", false
	}
	defer root.Close()

	file := f.handle(root, it.path)
	info, err := file.lstat()
	// A write within the same step of the clock would not show, so what is read now could not be trusted later.
	if err != nil || !info.Mode().IsRegular() || !stampOf(info).same(it.last) || !it.last.stable(time.Now()) {
		return "", false
	}

	hash, err := f.w.read(ctx, &f.Watch, file, stampOf(info))
	if err != nil {
		return "", false
	}
	_, claimed, err := f.w.ledger.ClaimOf(ctx, f.Job, filepath.ToSlash(it.path), hash)
	return hash, err == nil && !claimed
}

// toLookAtEarly are the files that are due next, and have not been looked at early.
func (f *folder) toLookAtEarly() []*pendingFile {
	if f.Mode != ModePerFile || f.root == "" || f.debouncer.len() == 0 {
		return nil
	}

	var out []*pendingFile
	for _, it := range f.debouncer.dueBefore(f.debouncer.nextDue().Add(earlyBy(largeFile)), maxEarly) {
		if _, waits := f.waits[it.path]; !it.early.done && !waits && it.last.size < largeFile {
			out = append(out, it)
		}
	}
	return out
}

// earlyDue is when the next file is to be looked at early; zero when none is.
func (f *folder) earlyDue() (at time.Time) {
	for _, it := range f.toLookAtEarly() {
		if early := it.due.Add(-earlyBy(it.last.size)); at.IsZero() || early.Before(at) {
			at = early
		}
	}
	return at
}

// untilPrecisely waits until an instant that is at most maxPrecise away, and says whether it has come. The runtime wakes up to a
// millisecond late, as it asks the system for whole ones; this keeps a thread from other work instead, so that of all folders only
// one does it at a time.
func (w *Watcher) untilPrecisely(at time.Time) bool {
	select {
	case w.precise <- struct{}{}:
	default:
		return false
	}
	defer func() { <-w.precise }()

	// The second time makes up for having been woken early.
	for range 2 {
		if rest := time.Until(at); rest > 0 && !sleepThread(rest) {
			return false
		}
	}
	return !time.Now().Before(at)
}
