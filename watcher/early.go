package watcher

import (
	"context"
	"errors"
	"path/filepath"
	"time"
	"unicode/utf8"
)

// errLate is of a look that took too long for a transaction to wait for it.
var errLate = errors.New("the file could not be looked at in time")

const (
	// maxEarly is how many files are looked at early; where more are due at about the same time, none is: that is a burst,
	// whose files are taken together.
	maxEarly = 4
	// maxPrecise is how long at most a folder waits in the system itself, where nothing wakes it.
	maxPrecise = 2 * time.Millisecond
	// headStart is how long before the end of its window a file that was read is handed to the ledger, whose transaction then
	// waits for the end: about what all but the commit takes.
	headStart = 700 * time.Microsecond
	// maxConfirm is how long the transaction waits at most: a file system that hangs must not hold up what others write.
	maxConfirm = 10 * time.Millisecond
)

// earlyLook is what is known of a file before its window ends.
type earlyLook struct {
	unclaimed string // the hash of its content, which had no claim; "" where that is not known
	stamp     stamp  // what it looked like then
	tried     bool   // takeOnTime has tried to take it
}

// takeable says whether nothing but the end of the window is missing.
func (e *earlyLook) takeable() bool { return e != nil && e.unclaimed != "" && !e.tried }

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

		it.early = f.readEarly(ctx, it)
	}
}

// readEarly reads a file. What is wrong with one shows again when its window is over.
func (f *folder) readEarly(ctx context.Context, it *pendingFile) *earlyLook {
	nothing := &earlyLook{}
	root, err := f.openRoot()
	if err != nil {
		return nothing
	}
	defer root.Close()

	file := f.handle(root, it.path)
	info, err := file.lstat()
	if err != nil || !info.Mode().IsRegular() {
		return nothing
	}

	// A write within the same step of the clock would not show, so what is read now could not be trusted later.
	st := stampOf(info)
	if now := time.Now(); !st.same(it.last) || !st.stable(now) || !(stamp{modified: st.changed}).stable(now) {
		return nothing
	}

	hash, err := f.w.read(ctx, &f.Watch, file, st)
	if err != nil || !utf8.ValidString(it.path) {
		return nothing
	}
	if _, claimed, err := f.w.ledger.ClaimOf(ctx, f.Job, filepath.ToSlash(it.path), hash); err != nil || claimed {
		return nothing
	}
	return &earlyLook{unclaimed: hash, stamp: st}
}

// toLookAtEarly are the files that are due next, and have not been looked at early. An empty one takes no time to be read, and may be the
// place of a download that goes on beside it (see awaitsDownload).
func (f *folder) toLookAtEarly() []*pendingFile {
	if f.Mode != ModePerFile || f.root == "" || f.debouncer.len() == 0 {
		return nil
	}

	var out []*pendingFile
	for _, it := range f.debouncer.dueBefore(f.debouncer.nextDue().Add(earlyBy(largeFile)), maxEarly) {
		if _, waits := f.waits[it.path]; it.early == nil && !waits && it.last.size > 0 && it.last.size < largeFile {
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

// takeOnTime claims the first file that was read early, with a transaction that is ready to be committed when the window ends. Only then
// the file is looked at for the last time, and the transaction goes no further if anything about it has changed: it stays
// where it is, and is due as any other.
func (f *folder) takeOnTime(ctx context.Context) {
	it, now := f.debouncer.first(), time.Now()
	if it == nil || !it.early.takeable() || now.Before(it.due.Add(-headStart)) || !now.Before(it.due) || !f.w.lockPrecise() {
		return
	}
	defer f.w.unlockPrecise()

	it.early.tried = true
	look := &lastLook{over: make(chan struct{})}
	r := request(f.Watch, it.path, it.early.stamp, it.early.unclaimed)
	r.Breaker, r.Confirm = f.breaker(), look.confirm
	go func() { look.end(f.lookLast(it)) }() // meanwhile this goroutine waits, whose state it reads
	recorded := f.enqueue(ctx, r)
	<-look.over
	if recorded {
		f.debouncer.remove(it.path)
		f.clearUnreadable(it.path)
	}
}

// lastLook is the look at a file when its window is over, which the transaction of its run waits for.
type lastLook struct {
	over chan struct{} // closed by end
	err  error         // before that
}

func (l *lastLook) end(err error) {
	l.err = err
	close(l.over)
}

func (l *lastLook) confirm() error {
	enough := time.NewTimer(maxConfirm)
	defer enough.Stop()

	select {
	case <-l.over:
		return l.err
	case <-enough.C:
		return errLate
	}
}

// lookLast waits for the end of a file's window, and says what has changed about the file since it was read: nil where nothing has.
func (f *folder) lookLast(it *pendingFile) error {
	if !waitUntil(it.due) {
		return errLate
	}

	root, err := f.openRoot()
	if err != nil {
		return err
	}
	defer root.Close()

	file := f.handle(root, it.path)
	info, err := file.lstat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular() || stampOf(info) != it.early.stamp || f.hasEvent(it.path):
		return errChanged
	}
	return f.held(file, it.early.stamp)
}

// hasEvent says whether an event of a path has come since the last pass.
func (f *folder) hasEvent(path string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.eventIndex[path]
	return ok
}

// beforeTakenOnTime waits until the first file is to be handed to the ledger, where it can be and that is near; otherwise it says until
// when to wait by a timer, given when that file is due.
func (f *folder) beforeTakenOnTime(due time.Time) (at time.Time, waited bool) {
	it := f.debouncer.first()
	if f.w.precise == nil || it == nil || !it.due.Equal(due) || !it.early.takeable() {
		return due, false
	}

	begin := due.Add(-headStart)
	switch rest := time.Until(begin); {
	case rest > maxPrecise:
		return begin.Add(-maxPrecise), false
	case rest <= 0 || !f.w.lockPrecise():
		return due, false
	}
	defer f.w.unlockPrecise()
	return due, waitUntil(begin)
}

// lockPrecise lets one folder at a time wait in the system itself; false: another one does, or the system is not asked here.
func (w *Watcher) lockPrecise() bool {
	select {
	case w.precise <- struct{}{}:
		return true
	default:
		return false
	}
}

func (w *Watcher) unlockPrecise() { <-w.precise }

// waitUntil waits in the system itself until an instant that is near, and says whether it has come. The runtime's timers are up
// to a millisecond late, as it asks the system for whole ones.
func waitUntil(at time.Time) bool {
	for rest := time.Until(at); rest > 0; { // again, because it may be woken a little early
		waitInSystem(rest)
		left := time.Until(at)
		if left >= rest {
			return false // the clock of a test stands still meanwhile
		}
		rest = left
	}
	return true
}
