package watcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"rouse/agentdb/ledger"
)

// settle looks at the paths whose time has come, and claims those that are ready.
func (w *Watcher) settle(ctx context.Context) {
	for ctx.Err() == nil {
		w.mu.Lock()
		due := w.pending.due(time.Now(), batch)
		w.mu.Unlock()
		if len(due) == 0 {
			return
		}
		var ready []ledger.Request
		var from []*waiting
		for _, p := range due {
			if req, ok := w.look(ctx, p); ok {
				ready, from = append(ready, req), append(from, p)
			}
		}
		if len(ready) == 0 {
			continue
		}
		if _, err := w.ledger.Enqueue(ctx, ready...); err != nil {
			w.log.Error("files that are ready could not be recorded; they are tried again", "files", len(ready), "error", err)
			w.mu.Lock()
			for _, p := range from {
				w.pending.again(p, time.Now().Add(time.Second))
			}
			w.mu.Unlock()
			return
		}
	}
}

// look decides about one path: not ready yet, not ours, or a request for a run.
func (w *Watcher) look(ctx context.Context, p *waiting) (ledger.Request, bool) {
	w.mu.Lock()
	e := w.watches[p.job]
	w.mu.Unlock()
	if e == nil {
		return ledger.Request{}, false
	}
	info, err := os.Lstat(p.path)
	if err != nil || !info.Mode().IsRegular() {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.trouble(ctx, e, p.path, err)
		}
		return ledger.Request{}, false // gone, a folder, or a link
	}
	now := stampOf(info)
	if !p.seen || !now.equal(p.last) {
		// It has to look the same at two looks that are a settle window apart; one whose
		// last change is that long ago already needs only a moment.
		quiet := time.Since(info.ModTime())
		same := p.seen && now.equal(p.last)
		p.last, p.seen = now, true
		if !same {
			wait := e.Settle
			if quiet > e.Settle {
				wait = min(e.Settle/4, 50*time.Millisecond)
			}
			w.mu.Lock()
			w.pending.again(p, time.Now().Add(wait))
			w.mu.Unlock()
			return ledger.Request{}, false
		}
	}
	hash, known := w.hashes.get(p.path, now)
	if !known {
		if hash, err = hashFile(p.path, now); err != nil {
			w.unread(ctx, e, p, err)
			return ledger.Request{}, false
		}
		w.hashes.put(p.path, now, hash)
	}
	if w.taken(ctx, e, p.path, hash, info.ModTime()) {
		return ledger.Request{}, false
	}
	return request(e.Watch, p.path, info, hash), true
}

// taken says whether the ledger need not be asked to claim a content: its run is not over,
// or the file stays where it is after it. This keeps a rescan from writing.
func (w *Watcher) taken(ctx context.Context, e *watched, path, hash string, modified time.Time) bool {
	c, ok, err := w.ledger.ClaimOf(ctx, e.Job, filepath.ToSlash(path), hash)
	switch {
	case err != nil || !ok:
		return false
	case c.Outcome == "" || c.After == ledger.AfterPending:
		return true
	case c.After == ledger.AfterLeft:
		// A failed file that stays is tried again when it is dropped again, not at each scan.
		return c.Outcome.Done() || c.ModTime.UnixMilli() == modified.UnixMilli()
	}
	return false
}

func request(w Watch, path string, info fs.FileInfo, hash string) ledger.Request {
	slashed := filepath.ToSlash(path)
	return ledger.Request{
		Job: w.Job, Agent: w.Agent, Trigger: ledger.TriggerWatch,
		Detail: ledger.Detail{File: &ledger.File{Path: path, Name: info.Name(), Size: info.Size(), Hash: hash, ModTime: info.ModTime().UTC()}},
		Claim:  &ledger.Claim{Job: w.Job, Path: slashed, Hash: hash, Size: info.Size(), ModTime: info.ModTime()},
	}
}

// unread deals with a file that could not be hashed: it changed, it went, or it may not be read.
func (w *Watcher) unread(ctx context.Context, e *watched, p *waiting, err error) {
	switch {
	case errors.Is(err, errChanged):
		w.mu.Lock()
		p.seen = false
		w.pending.again(p, time.Now().Add(e.Settle))
		w.mu.Unlock()
	case errors.Is(err, fs.ErrNotExist):
	default:
		w.trouble(ctx, e, p.path, err)
	}
}

// trouble tells once of a file that cannot be read; the next scan tries it again.
func (w *Watcher) trouble(ctx context.Context, e *watched, path string, err error) {
	w.mu.Lock()
	news := !e.troubled[path]
	e.troubled[path] = true
	e.problem = fmt.Sprintf("%s cannot be read: %v; it is tried again at the next scan", path, err)
	w.mu.Unlock()
	if news {
		w.log.Warn("a file cannot be read", "job", e.Job, "path", path, "error", err)
		w.event(ctx, e.Job, "watch.unreadable", map[string]any{"path": path, "error": err.Error()})
	}
}

// Offer claims one file by hand, through the same claim as a drop.
func Offer(ctx context.Context, l *ledger.Ledger, w Watch, path string) (ledger.Accepted, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return ledger.Accepted{}, err
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return ledger.Accepted{}, fmt.Errorf("the file cannot be read: %w", err)
	}
	info, err := os.Lstat(abs)
	if err != nil {
		return ledger.Accepted{}, fmt.Errorf("the file cannot be read: %w", err)
	}
	if !info.Mode().IsRegular() {
		return ledger.Accepted{}, fmt.Errorf("%s is not a file", path)
	}
	hash, err := hashFile(abs, stampOf(info))
	if err != nil {
		return ledger.Accepted{}, fmt.Errorf("the file cannot be read: %w", err)
	}
	accepted, err := l.Enqueue(ctx, request(w, abs, info, hash))
	if err != nil {
		return ledger.Accepted{}, err
	}
	return accepted[0], nil
}
