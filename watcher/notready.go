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

// WaitsEvent is the kind of the event about a file that is not ready for a while.
const WaitsEvent = "file.waits"

// waitIfNotReady reports whether err means that a file is not ready. The file is then checked again
// after a while.
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

	// An event may have put it back already, while a large file was being looked at.
	if !f.debouncer.Has(c.Path) {
		f.debouncer.Requeue(c.Pending, now.Add(w.Pause(now, f.Settle)-f.Settle), c.stamp)
	}
	return true
}

// publishWaits drops the files that do not wait any more and copies the others to where Status reads
// them. The caller holds mu.
func (f *candidates) publishWaits() {
	f.waiting.Keep(func(path string) bool { return f.debouncer.Has(path) || f.hashing[path] })
	f.report.status.Waits = f.waiting.List()
	for _, b := range f.reappeared {
		f.report.status.Waits = append(f.report.status.Waits, b.WaitingFile)
	}
}

// unreadyChange returns an error if one of the changed files of a folder that converges is not ready.
// It is nil if that cannot be checked: the run is about the folder, and reads the files that it can.
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
