package watcher

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"rouse/watcher/fsys"
	"rouse/watcher/settle"
)

// WaitsEvent is the kind of the event about a file that has not been ready for a while.
const WaitsEvent = "file.waits"

// waitIfNotReady reports whether err is a settle.NotReadyError. If it is, the file is checked again
// later.
func (f *candidates) waitIfNotReady(ctx context.Context, c candidate, err error) bool {
	reason, ok := errors.AsType[*settle.NotReadyError](err)
	if !ok {
		return false
	}

	now := time.Now()
	w, report := f.waiting.Note(c.Path, reason, now)
	if report {
		f.w.log.Info("a file waits", "job", f.Job, "path", c.Path, "reason", w.Why, "since", w.Since)
		f.event(ctx, WaitsEvent, 0, map[string]any{"path": c.Path, "why": w.Why, "since": w.Since})
	}

	// An event may already have queued it again while a large file was being hashed.
	if !f.debouncer.Has(c.Path) {
		f.debouncer.Requeue(c.Pending, now.Add(w.Pause(now, f.Settle)-f.Settle), c.stamp)
	}
	return true
}

// publishWaits drops the files that no longer wait and copies the others into the status. The
// caller must hold report.mu.
func (f *candidates) publishWaits() {
	f.waiting.Keep(func(path string) bool { return f.debouncer.Has(path) || f.hashing[path] })
	f.report.status.Waits = f.waiting.List()
	for _, b := range f.reappeared {
		f.report.status.Waits = append(f.report.status.Waits, b.WaitingFile)
	}
}

// unreadyChange returns an error if a changed file of a folder in mode converge is not ready. It
// returns nil if it cannot check the files: the run is about the folder and reads the files it can.
func (l *loop) unreadyChange(names ...[]string) error {
	root, err := l.openRoot()
	if err != nil {
		return nil
	}
	defer root.Close()

	left := maxCheckedChanges
	for _, list := range names {
		for _, name := range list[:min(left, len(list))] {
			left--
			file := fsys.Handle{Root: root, Name: filepath.FromSlash(name)}
			info, err := file.Lstat()
			if err != nil || !info.Mode().IsRegular() {
				continue
			}

			held, ok := errors.AsType[*settle.NotReadyError](settle.CheckReady(file, fsys.StampOf(info), l.OwnFolder, l.TakeOpen))
			if !ok && info.Size() == 0 {
				held, ok = errors.AsType[*settle.NotReadyError](settle.CheckEmpty(file, l.partials))
			}
			if ok && held != settle.ErrHardLink {
				return fmt.Errorf("%s: %w", file.Path(), held)
			}
		}
	}
	return nil
}

// maxCheckedChanges is the maximum number of changed files that are checked.
const maxCheckedChanges = 100
