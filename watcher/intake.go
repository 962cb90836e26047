package watcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
	"unicode/utf8"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
	"rouse/internal/nofollow"
)

const (
	maxPerTx    = 512     // files that are claimed in one transaction
	hashers     = 4       // of them, that are hashed concurrently
	largeFile   = 8 << 20 // bytes from which a file is hashed in the background, so that others need not wait
	maxReclaims = 20      // claims of one path in a minute that pause its job
)

// candidate is a file that has settled.
type candidate struct {
	*pendingFile
	stamp stamp
	hash  string
	err   error // from hashing
}

// claimReady claims the files that have settled, in the order in which they did.
func (f *folder) claimReady(ctx context.Context) {
	f.mu.Lock()
	done := f.hashed
	f.hashed = nil
	f.mu.Unlock()
	for _, c := range done {
		delete(f.hashing, c.path)
	}

	for ctx.Err() == nil {
		due := f.debouncer.dequeueDue(time.Now(), maxPerTx)
		if len(due) == 0 && len(done) == 0 {
			return
		}
		f.claim(ctx, append(done, f.hashDue(ctx, due)...))
		done = nil
	}
}

// hashDue hashes the files that are due and have settled; the large ones come later.
func (f *folder) hashDue(ctx context.Context, due []*pendingFile) []candidate {
	if len(due) == 0 {
		return nil
	}

	root, err := f.openRoot()
	if isNotExist(err) {
		return nil // the scan on its return finds them
	}
	if _, ok := errors.AsType[*nofollow.LinkError](err); ok {
		f.requestScan(linkInPlace)
		f.requeue(due)
		return nil
	}

	if err != nil {
		f.w.log.Error("a watched folder cannot be opened; its files are tried again", "job", f.Job, "path", f.Path, "error", err)
		f.requeue(due)
		return nil
	}

	defer root.Close()

	var small []candidate
	for _, it := range due {
		if c, ok := f.confirmSettled(root, it); ok && !f.hashInBackground(ctx, c) {
			small = append(small, c)
		}
	}

	f.hashSmall(ctx, root, small)
	return small
}

// requeue has files that could not be looked at wait a little longer.
func (f *folder) requeue(due []*pendingFile) {
	for _, it := range due {
		f.debouncer.requeue(it, time.Now().Add(time.Second), it.last)
	}
}

// handle opens nothing: it names a file of the folder for later calls.
func (f *folder) handle(root *os.Root, path string) fileHandle {
	rel, _ := relInside(f.root, path)
	return fileHandle{root, filepath.FromSlash(rel)}
}

// confirmSettled says whether a file that is due still looks as it did; if not, it waits again.
func (f *folder) confirmSettled(root *os.Root, it *pendingFile) (candidate, bool) {
	info, err := f.handle(root, it.path).lstat()
	if err != nil || !info.Mode().IsRegular() {
		return candidate{}, false // gone, or no file any more
	}
	c := candidate{pendingFile: it, stamp: stampOf(info)}
	return c, f.debouncer.confirm(it, time.Now(), c.stamp)
}

func (f *folder) hashSmall(ctx context.Context, root *os.Root, files []candidate) {
	var group sync.WaitGroup
	for i := range min(hashers, len(files)) {
		group.Go(func() {
			for j := i; j < len(files); j += hashers {
				files[j].hash, files[j].err = f.w.hashes.of(ctx, f.handle(root, files[j].path), files[j].stamp)
			}
		})
	}

	group.Wait()
}

// hashInBackground starts to hash a large file, and says whether it is one.
func (f *folder) hashInBackground(ctx context.Context, c candidate) bool {
	if c.stamp.size < largeFile {
		return false
	}

	if f.hashing[c.path] {
		f.debouncer.requeue(c.pendingFile, time.Now(), c.stamp) // an older version of it is still being hashed
		return true
	}

	f.hashing[c.path] = true
	open, within := f.Boundary.OpenRoot, f.root // the fields belong to the folder's goroutine
	f.background.Go(func() {
		select {
		case f.w.hashLanes <- struct{}{}:
			c.hash, c.err = f.w.hashOne(ctx, open, within, c)
			<-f.w.hashLanes
		case <-ctx.Done():
			return
		}

		f.mu.Lock()
		f.hashed = append(f.hashed, c)
		f.mu.Unlock()
		f.notify()
	})

	return true
}

// hashOne hashes one file with a handle of its own: the folder's is closed by then.
func (w *Watcher) hashOne(ctx context.Context, open func(string) (*os.Root, error), dir string, c candidate) (string, error) {
	root, err := open(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	rel, _ := relInside(dir, c.path)
	return w.hashes.of(ctx, fileHandle{root, filepath.FromSlash(rel)}, c.stamp)
}

// claim queues runs for the hashed files that have no claim yet: at once, or together with
// others in a batch.
func (f *folder) claim(ctx context.Context, files []candidate) {
	var fresh []candidate
	for _, c := range files {
		if c.err != nil {
			f.hashFailed(ctx, c)
			continue
		}

		// The ledger keeps paths as text.
		f.clearUnreadable(c.path)
		if !utf8.ValidString(c.path) {
			f.reportUnreadable(ctx, c.path, errors.New("its name is not UTF-8; rename it"))
			continue
		}

		if claimed, err := f.alreadyClaimed(ctx, c); err != nil || claimed {
			f.batch.remove(c.path)
		} else if f.Mode == ModeBatch {
			f.batch.add(c, time.Now())
		} else {
			fresh = append(fresh, c)
		}
	}

	requests := make([]ledger.Request, len(fresh))
	for i, c := range fresh {
		requests[i] = request(f.Watch, c.path, c.stamp, c.hash)
		requests[i].Breaker = f.breaker()
	}
	if len(requests) == 0 || f.enqueue(ctx, requests...) {
		return
	}

	for _, c := range fresh {
		f.debouncer.requeue(c.pendingFile, time.Now().Add(time.Second), c.stamp)
	}
}

// enqueue queues runs, and says whether they are recorded.
func (f *folder) enqueue(ctx context.Context, requests ...ledger.Request) bool {
	if ctx.Err() != nil {
		return false
	}

	accepted, err := f.w.ledger.Enqueue(ctx, requests...)
	if err != nil {
		if ctx.Err() == nil {
			f.w.log.Error("what is ready could not be recorded; it is tried again", "job", f.Job, "requests", len(requests), "error", err)
		}
		return false
	}

	for _, a := range accepted {
		if a.BreakerTripped {
			f.w.log.Warn("a job is paused: one of its files is written again and again, perhaps by itself", "job", f.Job, "run", a.Run)
		}
	}

	return true
}

// breaker stops a job that triggers itself by writing into its own folder.
func (f *folder) breaker() ledger.Breaker {
	b := ledger.Breaker{MaxClaims: maxReclaims, Within: time.Minute}
	if f.w.breakerNotices != nil {
		b.Notices = func(path string) []ledger.Notice { return f.w.breakerNotices(f.Job, path) }
	}
	return b
}

// markKnown makes scans pass over a file as long as it looks like this.
func (f *folder) markKnown(path string, now stamp) {
	// A stamp that is too young would hide another write in the same tick of the clock.
	if now.stable(time.Now()) {
		f.known.put(f.stampHasher.of(path, now), struct{}{})
	}
}

// alreadyClaimed says whether these bytes need no run: the one they have is not over, or they
// stay in place after it. It only reads, so that a scan of known files writes nothing.
func (f *folder) alreadyClaimed(ctx context.Context, c candidate) (bool, error) {
	st, ok, err := f.w.ledger.ClaimOf(ctx, f.Job, filepath.ToSlash(c.path), c.hash)
	if err != nil {
		if ctx.Err() == nil {
			f.w.log.Error("the claim of a file could not be read; it is tried again", "job", f.Job, "path", c.path, "error", err)
		}
		f.debouncer.requeue(c.pendingFile, time.Now().Add(time.Second), c.stamp)
		return false, err
	}

	if !ok {
		return false, nil
	}

	// The same bytes with another time: somebody saved or dropped the file again.
	saved := st.ModTime.UnixMilli() != c.stamp.modTime().UnixMilli()
	switch {
	case st.After == ledger.AfterPending:
		// The claimed file may have been moved already, and this one have come after it.
		f.debouncer.requeue(c.pendingFile, time.Now(), c.stamp)
		return true, nil
	case st.Outcome == "", st.After == ledger.AfterLeft && st.Outcome.Done():
		if saved && c.fromEvent {
			f.event(ctx, "file.blocked", st.Run, map[string]any{"path": c.path, "hash": c.hash, "run": st.Run})
		}
	case st.After == ledger.AfterLeft && !saved:
		// A failed file that stays in place runs again when it is dropped again, not at each scan.
	default:
		return false, nil
	}

	f.markKnown(c.path, c.stamp)
	return true, nil
}

// hashFailed deals with a file that could not be hashed: it changed, it is gone, or it cannot be
// read.
func (f *folder) hashFailed(ctx context.Context, c candidate) {
	switch {
	case ctx.Err() != nil, errors.Is(c.err, fs.ErrNotExist):
	case errors.Is(c.err, errChanged):
		if info, err := os.Lstat(c.path); err == nil {
			f.debouncer.observe(c.path, time.Now(), stampOf(info), hintChanged)
		}
	default:
		f.reportUnreadable(ctx, c.path, c.err)
	}
}

// reportUnreadable reports a file or folder that cannot be read, once; each scan tries it again.
func (f *folder) reportUnreadable(ctx context.Context, path string, err error) {
	f.mu.Lock()
	_, reported := f.unreadable[path]
	f.unreadable[path] = err.Error()
	f.mu.Unlock()
	if reported {
		return
	}

	f.w.log.Warn("a file cannot be read; it is tried again", "job", f.Job, "path", path, "error", err)
	f.event(ctx, "watch.unreadable", 0, map[string]any{"path": path, "error": err.Error()})
}

func (f *folder) clearUnreadable(path string) {
	f.mu.Lock()
	delete(f.unreadable, path)
	f.mu.Unlock()
}

func request(w Watch, path string, now stamp, hash string) ledger.Request {
	file, claim := fileOf(path, now, hash), claimOf(w.Job, path, now, hash)
	return ledger.Request{Job: w.Job, Agent: w.Agent, Trigger: domain.TriggerWatch, Detail: ledger.Detail{File: &file}, Claim: &claim}
}

func fileOf(path string, now stamp, hash string) ledger.File {
	return ledger.File{Path: path, Name: filepath.Base(path), Size: now.size, Hash: hash, ModTime: now.modTime()}
}

func claimOf(job, path string, now stamp, hash string) ledger.Claim {
	return ledger.Claim{Job: job, Path: filepath.ToSlash(path), Hash: hash, Size: now.size, ModTime: now.modTime()}
}

func hashOnce(ctx context.Context, b nofollow.Boundary, path string, now stamp) (string, error) {
	file, err := openHandle(b, path)
	if err != nil {
		return "", err
	}
	defer file.root.Close()
	return newHashes().of(ctx, file, now)
}

// EnqueueFile queues a run of one file that its owner names. It makes the same claim as a drop, so
// that content which had its run does not get another.
func EnqueueFile(ctx context.Context, l *ledger.Ledger, w Watch, path string) (ledger.Accepted, error) {
	// Claims are made by real paths; a scan resolves links too.
	abs, err := w.Boundary.Resolve(path)
	if err != nil {
		return ledger.Accepted{}, fmt.Errorf("the file cannot be read: %w", err)
	}

	info, err := w.Boundary.Stat(abs)
	if err != nil {
		return ledger.Accepted{}, fmt.Errorf("the file cannot be read: %w", err)
	}
	if !info.Mode().IsRegular() {
		return ledger.Accepted{}, fmt.Errorf("%s is not a file", path)
	}
	if !utf8.ValidString(abs) {
		return ledger.Accepted{}, fmt.Errorf("the name of %q is not UTF-8; rename it", path)
	}

	now := stampOf(info)
	hash, err := hashOnce(ctx, w.Boundary, abs, now)
	if errors.Is(err, errChanged) {
		return ledger.Accepted{}, fmt.Errorf("%s is still being written; try again once it is complete", path)
	}
	if err != nil {
		return ledger.Accepted{}, fmt.Errorf("the file cannot be read: %w", err)
	}

	accepted, err := l.Enqueue(ctx, request(w, abs, now, hash))
	if err != nil {
		return ledger.Accepted{}, err
	}

	return accepted[0], nil
}
