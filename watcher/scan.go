package watcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
	"time"

	"rouse/watcher/fsys"
	"rouse/watcher/settle"
	"rouse/watcher/tree"
)

const (
	pollEvery = 2 * time.Second // for folders without events
	// missingEvery applies to a missing folder, in case no event reports its return.
	missingEvery = 30 * time.Second
	periodic     = "periodic"
	// linkInPlace is the reason for a scan that reports the link and waits for the folder.
	linkInPlace = "a link took the place of the folder"
	linkKind    = "watch.link" // kind of the event about a link that is not followed
)

// scan reads the folder and handles its contents. A folder in mode converge passes no reason for
// the scans of its own loop.
func (f *folder) scan(ctx context.Context, why string) {
	walk, back := f.inspect(ctx)
	if walk == nil {
		return
	}

	f.files.reviewBack(ctx)
	news := f.updateUnreadable(ctx, walk)
	if f.Mode == ModeConverge {
		news = f.loop.evaluate(ctx, walk)
	}

	if back {
		why = "the folder is back"
	}

	// Routine scans get no event. A periodic scan that finds changes does, because no event
	// reported them.
	if why != "" && why != "start" && why != linksChanged && (why != periodic || news > 0 && walk.degraded == "") {
		f.w.log.Info("a watched folder was scanned", "job", f.Job, "path", f.Path, "reason", why, "found", news)
		f.event(ctx, "watch.rescanned", 0, map[string]any{"path": f.Path, "reason": why, "found": news})
	}
}

// inspect subscribes to the folder and to all subfolders it enters, reads them, and passes their
// files to the debouncer. The walk is nil if the folder is missing or ctx has ended.
func (f *folder) inspect(ctx context.Context) (_ *walk, back bool) {
	// Status reports a scan that does not end as a problem.
	began := time.Now()
	f.report.mu.Lock()
	f.report.scanning = began
	f.report.mu.Unlock()
	defer func() {
		f.report.mu.Lock()
		f.report.scanning = time.Time{}
		f.report.mu.Unlock()
	}()

	if f.w.subs.reopen() {
		f.w.log.Info("the system gives a file-system watcher again")
	}

	root, err := f.findRoot()
	if err != nil {
		f.rootMissing(ctx, err)
		return nil, false
	}

	back = f.rootFound(root)
	retries := f.moves.nextRetries()
	walk := f.walk(ctx, root, ".", retries)
	if ctx.Err() != nil {
		return nil, false
	}

	if walk.unopened {
		f.moves.retryAll()
	} else {
		f.moves.forgetVanished(retries, walk)
	}
	f.linked = walk.linked
	if err := f.files.skipPreexisting(ctx, walk); err != nil {
		if ctx.Err() == nil {
			f.w.log.Error("what was in a folder before its job cannot be read or recorded; it is tried again", "job", f.Job, "path", f.Path, "error", err)
		}
		f.scanAt = time.Now().Add(time.Second)
		return nil, false
	}

	f.files.debounceFound(walk)
	took := time.Since(began)
	f.unsubscribeStale(walk)
	f.finishScan(ctx, walk, took)

	return walk, back
}

// rootFound prepares for a scan of the folder at root. It reports whether the folder was missing
// before.
func (f *folder) rootFound(root string) bool {
	f.root = root
	f.skipFolders()
	f.report.mu.Lock()
	defer f.report.mu.Unlock()

	back := f.report.missing
	f.report.missing, f.report.status.Problem = false, ""
	return back
}

// debounceFound passes the files that a scan found to the debouncer, the oldest first.
func (f *candidates) debounceFound(walk *walk) {
	if f.Mode == ModeConverge {
		return // its files are fingerprinted together
	}

	slices.SortFunc(walk.files, func(a, b tree.Sighting) int {
		return cmp.Or(cmp.Compare(a.Stamp.Modified, b.Stamp.Modified), cmp.Compare(a.Path, b.Path))
	})
	now := time.Now()
	for i, s := range walk.files {
		if i > 0 && s.Path == walk.files[i-1].Path {
			continue // found through several links
		}
		f.debouncer.Observe(s.Path, now, s.Stamp, walk.hint)
	}
}

// unsubscribeStale ends the subscriptions of folders that the scan did not enter.
func (f *folder) unsubscribeStale(walk *walk) {
	stale := false
	for _, dir := range f.w.subs.dirs(f) {
		if walk.entered[dir] {
			continue
		}
		f.w.subs.unsubscribe(f, dir)
		if _, ok := fsys.RelInside(f.root, dir); ok {
			stale = true
		}
	}

	if stale {
		// The folder may have been renamed. The system then has one subscription for two paths, and
		// ending the old one has ended the new one too.
		f.hints.requestScan("a folder was renamed")
	}
}

func (f *folder) finishScan(ctx context.Context, walk *walk, took time.Duration) {
	now := time.Now()
	// A large polled folder must not be scanned without a pause.
	f.scanAt = now.Add(f.w.rescan)
	if walk.degraded != "" {
		f.scanAt = now.Add(min(f.w.rescan, max(pollEvery, 10*took)))
	}

	f.report.mu.Lock()
	before := f.report.status.Degraded
	f.report.status.Degraded, f.report.status.LastScan = walk.degraded, now
	f.report.mu.Unlock()

	switch {
	case walk.degraded != "" && before == "":
		f.w.log.Warn("a watched folder is polled", "job", f.Job, "path", f.Path, "reason", walk.degraded)
		f.event(ctx, "watch.polled", 0, map[string]any{"path": f.Path, "reason": walk.degraded})
	case walk.degraded == "" && before != "":
		f.w.log.Info("a watched folder is not polled any more", "job", f.Job, "path", f.Path)
		f.event(ctx, "watch.told", 0, map[string]any{"path": f.Path})
	}
}

// updateUnreadable drops errors that the scan does not confirm and reports new ones. It returns the
// number of files found that had no error before.
func (f *folder) updateUnreadable(ctx context.Context, walk *walk) (news int) {
	f.report.mu.Lock()
	old := f.report.unreadable
	f.report.unreadable = map[string]string{}

	for _, s := range walk.files {
		if _, known := old[s.Path]; !known {
			news++
		}
	}

	for path, why := range old {
		if f.files.debouncer.Has(path) || walk.unreadable[path] != nil {
			f.report.unreadable[path] = why
		}
	}

	f.report.mu.Unlock()
	for dir, err := range walk.unreadable {
		f.report.reportUnreadable(ctx, dir, err)
	}

	return news
}

// descend subscribes to a folder that has just appeared and reads its contents.
func (f *folder) descend(ctx context.Context, dir, name string) {
	walk := f.walk(ctx, dir, name, nil)
	walk.hint = settle.Arrived
	f.linked.merge(walk.linked)
	f.files.debounceFound(walk)
	for sub, err := range walk.unreadable {
		f.report.reportUnreadable(ctx, sub, err)
	}

	if walk.degraded != "" {
		f.hints.requestScan("a new folder cannot be watched")
	}
}

// pollReason returns the reason why a folder is polled, for its status.
func pollReason(dir string, err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "" // the folder is gone again
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EMFILE):
		return "the system's limit of watched folders is reached (on Linux, raise fs.inotify.max_user_watches and max_user_instances); it is scanned every " + pollEvery.String() + ", and asks the system again each time"
	}
	return fmt.Sprintf("%s cannot be watched: %v; it is scanned every %s, and asks the system again each time", dir, err, pollEvery)
}

// rootMissing records that the folder is missing. It waits for the folder by subscribing to its
// nearest existing parent.
func (f *folder) rootMissing(ctx context.Context, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		f.startMissing(ctx)
	}

	f.root = ""
	f.moves.retryAll()
	f.scanAt = time.Now().Add(missingEvery)
	f.awaited = f.resolveLinks(f.Path)
	near := f.nearestExisting()
	for range 100 { // a nearer parent may appear before the subscription
		if armErr := f.w.subs.subscribe(f, near); armErr != nil {
			f.scanAt = time.Now().Add(pollEvery)
			break
		}

		nearer := f.nearestExisting()
		if nearer == near {
			break
		}
		near = nearer
	}

	for _, dir := range f.w.subs.dirs(f) {
		if dir != near {
			f.w.subs.unsubscribe(f, dir)
		}
	}
	f.w.subs.reportRemoved(near)

	// The folder may have returned before the subscription, or a link may have replaced it, without
	// an event.
	if _, again := f.findRoot(); again == nil {
		f.hints.requestScan("the folder is back")
	} else {
		err = again
	}

	f.report.reportMissing(ctx, err)
}
