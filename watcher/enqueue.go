package watcher

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
	"unicode/utf8"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/claim"
	"rouse/internal/nofollow"
	"rouse/watcher/fsys"
	"rouse/watcher/settle"
)

const (
	maxPerTx = 512 // files claimed in one transaction
	hashers  = 4   // files hashed concurrently
	// Files of at least this many bytes are hashed in the background, so that other files need not
	// wait.
	largeFile   = 8 << 20
	maxReclaims = 20 // claims of one path per minute that pause its job
)

// candidate is a file that has settled.
type candidate struct {
	*settle.Pending
	stamp fsys.Stamp
	hash  string
	err   error // error from hashing
}

// claimReady claims the files that have settled, in the order in which they settled.
func (f *candidates) claimReady(ctx context.Context) {
	f.mu.Lock()
	done := f.hashed
	f.hashed = nil
	f.mu.Unlock()
	for _, c := range done {
		delete(f.hashing, c.Path)
	}

	for ctx.Err() == nil {
		due := f.debouncer.Dequeue(time.Now(), maxPerTx)
		if len(due) == 0 && len(done) == 0 {
			return
		}
		f.claim(ctx, append(done, f.hashDue(ctx, due)...))
		done = nil
	}
}

// hashDue hashes the files that are due and have settled. Large files are hashed later.
func (f *candidates) hashDue(ctx context.Context, due []*settle.Pending) []candidate {
	if len(due) == 0 {
		return nil
	}

	root, err := f.openRoot()
	if fsys.IsNotExist(err) {
		return nil // the scan after the folder's return finds them
	}
	if err != nil {
		if _, ok := errors.AsType[*nofollow.LinkError](err); ok {
			f.hints.requestScan(linkInPlace)
		} else {
			f.w.log.Error("a watched folder cannot be opened; its files are tried again", "job", f.Job, "path", f.Path, "error", err)
		}
		for _, it := range due {
			f.debouncer.Requeue(it, time.Now().Add(time.Second), it.Last)
		}
		return nil
	}
	defer root.Close()

	var small []candidate
	for _, it := range due {
		file := fsys.HandleIn(root, it.Path)
		info, err := file.Lstat()
		if err != nil || !info.Mode().IsRegular() {
			continue // gone, or no longer a regular file
		}

		c := candidate{Pending: it, stamp: fsys.StampOf(info)}
		switch {
		case !f.debouncer.Confirm(it, time.Now(), c.stamp):
		case c.stamp.Size == 0 && f.waitIfNotReady(ctx, c, settle.CheckEmpty(file, f.partials)):
		case c.stamp.Size >= largeFile:
			f.hashInBackground(ctx, c)
		default:
			small = append(small, c)
		}
	}

	var group sync.WaitGroup
	for i := range min(hashers, len(small)) {
		group.Go(func() {
			for j := i; j < len(small); j += hashers {
				c := &small[j]
				c.hash, c.err = f.w.read(ctx, &f.Watch, fsys.HandleIn(root, c.Path), c.stamp)
			}
		})
	}
	group.Wait()
	return small
}

// hashInBackground starts to hash a large file.
func (f *candidates) hashInBackground(ctx context.Context, c candidate) {
	if f.hashing[c.Path] {
		f.debouncer.Requeue(c.Pending, time.Now(), c.stamp) // an older version is still being hashed
		return
	}

	f.hashing[c.Path] = true
	watch, within := f.Watch, f.root // the fields may only be read by the folder's goroutine
	f.background.Go(func() {
		select {
		case f.w.hashLanes <- struct{}{}:
			c.hash, c.err = f.w.hashOne(ctx, &watch, within, c)
			<-f.w.hashLanes
		case <-ctx.Done():
			return
		}

		f.mu.Lock()
		f.hashed = append(f.hashed, c)
		f.mu.Unlock()
		f.hints.notify()
	})
}

// hashOne hashes one file with its own handle, because the folder's handle is closed by then.
func (w *Watcher) hashOne(ctx context.Context, watch *Watch, dir string, c candidate) (string, error) {
	root, err := watch.Boundary.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	return w.read(ctx, watch, fsys.HandleIn(root, c.Path), c.stamp)
}

// read returns the hash of a file, or a settle.NotReadyError if the file is held back.
func (w *Watcher) read(ctx context.Context, watch *Watch, file fsys.Handle, now fsys.Stamp) (string, error) {
	if err := settle.CheckReady(file, now, watch.OwnFolder, watch.TakeOpen); err != nil {
		return "", err
	}
	return w.hashes.Of(ctx, file, now)
}

// claim queues runs for the hashed files that have no claim yet, either at once or together with
// others in a batch.
func (f *candidates) claim(ctx context.Context, files []candidate) {
	var fresh []candidate
	for _, c := range files {
		if c.err != nil {
			f.hashFailed(ctx, c)
			continue
		}

		// The ledger stores paths as text.
		f.report.mu.Lock()
		delete(f.report.unreadable, c.Path)
		f.report.mu.Unlock()
		if !utf8.ValidString(c.Path) {
			f.report.reportUnreadable(ctx, c.Path, errors.New("its name is not UTF-8; rename it"))
			continue
		}

		if claimed, err := f.alreadyClaimed(ctx, c); err != nil || claimed {
			delete(f.batch.files, c.Path)
		} else if f.Mode == ModeBatch {
			f.batch.add(c, time.Now())
		} else {
			fresh = append(fresh, c)
		}
	}

	if len(fresh) == 0 {
		return
	}
	requests, breaker := make([]ledger.Request, len(fresh)), f.breaker()
	for i, c := range fresh {
		requests[i] = request(f.Watch, c.Path, c.stamp, c.hash)
		requests[i].Breaker = breaker
	}
	if f.enqueue(ctx, requests...) {
		return
	}

	for _, c := range fresh {
		f.debouncer.Requeue(c.Pending, time.Now().Add(time.Second), c.stamp)
	}
}

// markKnown makes scans skip a file until its stamp changes.
func (f *candidates) markKnown(path string, now fsys.Stamp) {
	// If the stamp is too young, another write in the same clock tick would not change it.
	if now.Stable(time.Now()) {
		f.known.Put(f.stampHasher.Of(path, now), struct{}{})
	}
}

// alreadyClaimed reports whether a content needs no run, because its run has not ended or the file
// stays in place afterwards. It only reads, so that a scan of known files does not write.
func (f *candidates) alreadyClaimed(ctx context.Context, c candidate) (bool, error) {
	st, ok, err := f.w.ledger.Claims.Of(ctx, f.Job, filepath.ToSlash(c.Path), c.hash)
	if err != nil {
		if ctx.Err() == nil {
			f.w.log.Error("the claim of a file could not be read; it is tried again", "job", f.Job, "path", c.Path, "error", err)
		}
		f.debouncer.Requeue(c.Pending, time.Now().Add(time.Second), c.stamp)
		return false, err
	}

	if !ok {
		return false, nil
	}

	// The same bytes with another time: the file was saved or dropped again.
	saved := st.ModTime.UnixMilli() != c.stamp.ModTime().UnixMilli()
	switch {
	case st.After == claim.AfterPending:
		// The claimed file may already have been moved, and this one may have arrived after it.
		f.debouncer.Requeue(c.Pending, time.Now(), c.stamp)
		return true, nil
	case st.After == claim.AfterUndone && saved:
		return false, nil
	case st.After == claim.AfterUndone:
		// An undo put the file back or left it here. It gets a run only on request.
	case st.Outcome == "", st.After == claim.AfterLeft && st.Outcome.Done():
		if saved && c.FromEvent {
			f.event(ctx, "file.blocked", st.Run, map[string]any{"path": c.Path, "hash": c.hash, "run": st.Run})
		}
	case st.After == claim.AfterLeft && !saved:
		// A failed file that stays in place is not checked again on each scan.
	default:
		if back, err := f.fileReappeared(ctx, c, st); err != nil || !back {
			return false, err
		}
	}

	f.markKnown(c.Path, c.stamp)
	return true, nil
}

// hashFailed handles a file that could not be hashed because it has changed, is gone, or cannot be
// read.
func (f *candidates) hashFailed(ctx context.Context, c candidate) {
	switch {
	case ctx.Err() != nil, errors.Is(c.err, fs.ErrNotExist), f.waitIfNotReady(ctx, c, c.err):
	case errors.Is(c.err, fsys.ErrChanged):
		if info, err := os.Lstat(c.Path); err == nil {
			f.debouncer.Observe(c.Path, time.Now(), fsys.StampOf(info), settle.Changed)
		}
	default:
		f.report.reportUnreadable(ctx, c.Path, c.err)
	}
}

func request(w Watch, path string, now fsys.Stamp, hash string) ledger.Request {
	file, claim := fileOf(path, now, hash), claimOf(w.Job, path, now, hash)
	return ledger.Request{Job: w.Job, Agent: w.Agent, Trigger: domain.TriggerWatch, Detail: ledger.TriggerDetail{File: &file, Definition: w.Definition}, Claim: &claim}
}

func fileOf(path string, now fsys.Stamp, hash string) ledger.File {
	return ledger.File{Path: path, Name: filepath.Base(path), Size: now.Size, Hash: hash, ModTime: now.ModTime()}
}

func claimOf(job, path string, now fsys.Stamp, hash string) claim.Claim {
	return claim.Claim{Job: job, Path: filepath.ToSlash(path), Hash: hash, Size: now.Size, ModTime: now.ModTime()}
}
