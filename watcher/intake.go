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
)

const (
	hashers = 4       // files of a batch that are read at the same time
	longer  = 8 << 20 // bytes from which a file is read beside, so that others need not wait
)

// candidate is a file that has settled.
type candidate struct {
	*item
	info fs.FileInfo
	now  stamp
	hash string
	err  error // of hashing
}

// takeReady claims the files that have settled, in the order in which they did.
func (f *folder) takeReady(ctx context.Context) {
	f.mu.Lock()
	done := f.hashed
	f.hashed = nil
	f.mu.Unlock()
	for _, c := range done {
		delete(f.long, c.path)
	}
	for ctx.Err() == nil {
		due := f.settler.due(time.Now(), batch)
		if len(due) == 0 && len(done) == 0 {
			return
		}
		ready := done
		done = nil
		var short []candidate
		for _, it := range due {
			if c, ok := f.settled(it); ok && !f.hashLong(ctx, c) {
				short = append(short, c)
			}
		}
		f.hashShort(ctx, short)
		f.claim(ctx, append(ready, short...))
	}
}

// settled looks at a file that is due.
func (f *folder) settled(it *item) (candidate, bool) {
	info, err := os.Lstat(it.path)
	if err != nil || !info.Mode().IsRegular() {
		return candidate{}, false // gone, or something else now
	}
	c := candidate{item: it, info: info, now: stampOf(info)}
	return c, f.settler.check(it, time.Now(), c.now)
}

func (f *folder) hashShort(ctx context.Context, files []candidate) {
	var group sync.WaitGroup
	for i := range min(hashers, len(files)) {
		group.Go(func() {
			for j := i; j < len(files); j += hashers {
				files[j].hash, files[j].err = f.w.hashes.of(ctx, files[j].path, files[j].now)
			}
		})
	}
	group.Wait()
}

// hashLong has a long file read beside; it says whether it does.
func (f *folder) hashLong(ctx context.Context, c candidate) bool {
	if c.now.size < longer {
		return false
	}
	if f.long[c.path] {
		f.settler.again(c.item, time.Now(), c.now) // an older state of it is still being read
		return true
	}
	f.long[c.path] = true
	f.beside.Go(func() {
		select {
		case f.w.slots <- struct{}{}:
			c.hash, c.err = f.w.hashes.of(ctx, c.path, c.now)
			<-f.w.slots
		case <-ctx.Done():
			return
		}
		f.mu.Lock()
		f.hashed = append(f.hashed, c)
		f.mu.Unlock()
		f.poke()
	})
	return true
}

// claim asks the ledger for the runs of files that were hashed.
func (f *folder) claim(ctx context.Context, files []candidate) {
	var asked []candidate
	var requests []ledger.Request
	for _, c := range files {
		if c.err != nil {
			f.unread(ctx, c)
			continue
		}
		f.readable(c.path)
		if !utf8.ValidString(c.path) {
			f.trouble(ctx, c.path, errors.New("its name is not UTF-8; rename it"))
			continue
		}
		if taken, err := f.taken(ctx, c); err == nil && !taken {
			asked, requests = append(asked, c), append(requests, request(f.Watch, c.path, c.info, c.hash))
		}
	}
	if len(requests) == 0 || ctx.Err() != nil {
		return
	}
	if _, err := f.w.ledger.Enqueue(ctx, requests...); err != nil {
		if ctx.Err() == nil {
			f.w.log.Error("files that are ready could not be recorded; they are tried again", "job", f.Job, "files", len(asked), "error", err)
		}
		for _, c := range asked {
			f.settler.again(c.item, time.Now().Add(time.Second), c.now)
		}
		return
	}
	for _, c := range asked {
		f.know(c)
	}
}

// know makes scans pass over a file as it looks now.
func (f *folder) know(c candidate) {
	if c.now.stable(time.Now()) {
		f.known.put(f.marker.of(c.path, c.now), struct{}{})
	}
}

// taken says whether there is nothing to ask the ledger for: the run of these bytes is not
// over, or they stay where they are after it. So a scan does not write.
func (f *folder) taken(ctx context.Context, c candidate) (bool, error) {
	st, ok, err := f.w.ledger.ClaimOf(ctx, f.Job, filepath.ToSlash(c.path), c.hash)
	if err != nil {
		if ctx.Err() == nil {
			f.w.log.Error("who took a file could not be read; it is tried again", "job", f.Job, "path", c.path, "error", err)
		}
		f.settler.again(c.item, time.Now().Add(time.Second), c.now)
		return false, err
	}
	if !ok {
		return false, nil
	}
	saved := st.ModTime.UnixMilli() != c.info.ModTime().UnixMilli()
	switch {
	case st.After == ledger.AfterPending:
		// It may be on its way already, and this another file that came after it.
		f.settler.again(c.item, time.Now(), c.now)
		return true, nil
	case st.Outcome == "", st.After == ledger.AfterLeft && st.Outcome.Done():
		if saved && c.live {
			f.event(ctx, "file.blocked", st.Run, map[string]any{"path": c.path, "hash": c.hash, "run": st.Run})
		}
	case st.After == ledger.AfterLeft && !saved:
		// A failed file that stays is tried again when it is dropped again, not at each scan.
	default:
		return false, nil
	}
	f.know(c)
	return true, nil
}

// unread deals with a file that could not be hashed: it changed, it went, or it may not be read.
func (f *folder) unread(ctx context.Context, c candidate) {
	switch {
	case ctx.Err() != nil, errors.Is(c.err, fs.ErrNotExist):
	case errors.Is(c.err, errChanged):
		if info, err := os.Lstat(c.path); err == nil {
			f.settler.see(c.path, time.Now(), stampOf(info), hintChanged)
		}
	default:
		f.trouble(ctx, c.path, c.err)
	}
}

// trouble tells once of a file or folder that cannot be read; each scan tries it again.
func (f *folder) trouble(ctx context.Context, path string, err error) {
	f.mu.Lock()
	_, told := f.troubled[path]
	f.troubled[path] = err.Error()
	f.mu.Unlock()
	if told {
		return
	}
	f.w.log.Warn("a file cannot be read; it is tried again", "job", f.Job, "path", path, "error", err)
	f.event(ctx, "watch.unreadable", 0, map[string]any{"path": path, "error": err.Error()})
}

func (f *folder) readable(path string) {
	f.mu.Lock()
	delete(f.troubled, path)
	f.mu.Unlock()
}

func request(w Watch, path string, info fs.FileInfo, hash string) ledger.Request {
	return ledger.Request{
		Job: w.Job, Agent: w.Agent, Trigger: ledger.TriggerWatch,
		Detail: ledger.Detail{File: &ledger.File{Path: path, Name: info.Name(), Size: info.Size(), Hash: hash, ModTime: info.ModTime().UTC()}},
		Claim:  &ledger.Claim{Job: w.Job, Path: filepath.ToSlash(path), Hash: hash, Size: info.Size(), ModTime: info.ModTime()},
	}
}

// Offer claims one file by hand, through the same claim as a drop.
func Offer(ctx context.Context, l *ledger.Ledger, w Watch, path string) (ledger.Accepted, error) {
	abs, err := filepath.Abs(path)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return ledger.Accepted{}, fmt.Errorf("the file cannot be read: %w", err)
	}
	info, err := os.Lstat(abs)
	if err != nil {
		return ledger.Accepted{}, fmt.Errorf("the file cannot be read: %w", err)
	}
	if !info.Mode().IsRegular() {
		return ledger.Accepted{}, fmt.Errorf("%s is not a file", path)
	}
	if !utf8.ValidString(abs) {
		return ledger.Accepted{}, fmt.Errorf("the name of %q is not UTF-8; rename it", path)
	}
	hash, err := newHashes().of(ctx, abs, stampOf(info))
	if errors.Is(err, errChanged) {
		return ledger.Accepted{}, fmt.Errorf("%s is still being written; offer it again once it is complete", path)
	}
	if err != nil {
		return ledger.Accepted{}, fmt.Errorf("the file cannot be read: %w", err)
	}
	accepted, err := l.Enqueue(ctx, request(w, abs, info, hash))
	if err != nil {
		return ledger.Accepted{}, err
	}
	return accepted[0], nil
}
