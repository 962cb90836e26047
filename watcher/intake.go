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
)

const (
	together = 512     // files that are claimed in one transaction
	hashers  = 4       // of them, that are read at the same time
	longer   = 8 << 20 // bytes from which a file is read beside, so that others need not wait
	reclaims = 20      // of one path in a minute, after which its job is paused
)

// candidate is a file that has settled.
type candidate struct {
	*item
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
		due := f.settler.due(time.Now(), together)
		if len(due) == 0 && len(done) == 0 {
			return
		}
		f.claim(ctx, append(done, f.readDue(ctx, due)...))
		done = nil
	}
}

// readDue hashes the files that are due and have settled; the long ones come later.
func (f *folder) readDue(ctx context.Context, due []*item) []candidate {
	if len(due) == 0 {
		return nil
	}

	root, err := os.OpenRoot(f.root)
	if gone(err) {
		return nil // it is scanned once it is back
	}

	if err != nil {
		f.w.log.Error("a watched folder cannot be opened; its files are tried again", "job", f.Job, "path", f.Path, "error", err)
		for _, it := range due {
			f.settler.again(it, time.Now().Add(time.Second), it.last)
		}
		return nil
	}

	defer root.Close()

	var short []candidate
	for _, it := range due {
		if c, ok := f.settled(root, it); ok && !f.hashLong(ctx, c) {
			short = append(short, c)
		}
	}

	f.hashShort(ctx, root, short)
	return short
}

// spot is a file of the folder.
func (f *folder) spot(root *os.Root, path string) spot {
	rel, _ := inside(f.root, path)
	return spot{root, filepath.FromSlash(rel)}
}

// settled looks at a file that is due.
func (f *folder) settled(root *os.Root, it *item) (candidate, bool) {
	info, err := f.spot(root, it.path).lstat()
	if err != nil || !info.Mode().IsRegular() {
		return candidate{}, false // gone, or something else now
	}
	c := candidate{item: it, now: stampOf(info)}
	return c, f.settler.check(it, time.Now(), c.now)
}

func (f *folder) hashShort(ctx context.Context, root *os.Root, files []candidate) {
	var group sync.WaitGroup
	for i := range min(hashers, len(files)) {
		group.Go(func() {
			for j := i; j < len(files); j += hashers {
				files[j].hash, files[j].err = f.w.hashes.of(ctx, f.spot(root, files[j].path), files[j].now)
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
	within := f.root
	f.beside.Go(func() {
		select {
		case f.w.slots <- struct{}{}:
			c.hash, c.err = f.w.hashAlone(ctx, within, c)
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

// hashAlone reads one file of a folder.
func (w *Watcher) hashAlone(ctx context.Context, dir string, c candidate) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	rel, _ := inside(dir, c.path)
	return w.hashes.of(ctx, spot{root, filepath.FromSlash(rel)}, c.now)
}

// claim has the files that were hashed, and that nobody has taken, become runs: at once, or
// together with others.
func (f *folder) claim(ctx context.Context, files []candidate) {
	var asked []candidate
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

		if taken, err := f.taken(ctx, c); err != nil || taken {
			f.batch.drop(c.path)
		} else if f.Mode == ModeBatch {
			f.batch.put(c, time.Now())
		} else {
			asked = append(asked, c)
		}
	}

	requests := make([]ledger.Request, len(asked))
	for i, c := range asked {
		requests[i] = request(f.Watch, c.path, c.now, c.hash)
		requests[i].Breaker = f.breaker()
	}
	if len(requests) == 0 || f.enqueue(ctx, requests...) {
		return
	}

	for _, c := range asked {
		f.settler.again(c.item, time.Now().Add(time.Second), c.now)
	}
}

// enqueue asks the ledger for runs, and says whether it has them.
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
		if a.Broken {
			f.w.log.Warn("a job is paused: one of its files is written again and again, perhaps by itself", "job", f.Job, "run", a.Run)
		}
	}

	return true
}

// breaker stops a job that wakes itself.
func (f *folder) breaker() ledger.Breaker {
	b := ledger.Breaker{Most: reclaims, Within: time.Minute}
	if f.w.broken != nil {
		b.Notices = func(path string) []ledger.Notice { return f.w.broken(f.Job, path) }
	}
	return b
}

// know makes scans pass over a file as it looks now.
func (f *folder) know(path string, now stamp) {
	if now.stable(time.Now()) {
		f.known.put(f.marker.of(path, now), struct{}{})
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

	saved := st.ModTime.UnixMilli() != c.now.modTime().UnixMilli()
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

	f.know(c.path, c.now)
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

func hashOnce(ctx context.Context, path string, now stamp) (string, error) {
	file, err := spotOf(path)
	if err != nil {
		return "", err
	}
	defer file.root.Close()
	return newHashes().of(ctx, file, now)
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

	now := stampOf(info)
	hash, err := hashOnce(ctx, abs, now)
	if errors.Is(err, errChanged) {
		return ledger.Accepted{}, fmt.Errorf("%s is still being written; offer it again once it is complete", path)
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
