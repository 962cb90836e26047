package watcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"rouse/internal/nofollow"
	"rouse/watcher/fsys"
	"rouse/watcher/settle"
	"rouse/watcher/tree"
)

const (
	pollEvery    = 2 * time.Second  // a folder without events
	missingEvery = 30 * time.Second // a missing folder, should no event report its return
	periodic     = "periodic"
	linkInPlace  = "a link took the place of the folder" // a scan says so, and waits for the folder
	linkKind     = "watch.link"                          // of the event that tells of a link which is not followed
)

// scan reads the folder and acts on what is in it. A folder that converges gives no reason for
// the scans of its own loop.
func (f *folder) scan(ctx context.Context, why string) {
	walk, back := f.inspect(ctx)
	if walk == nil {
		return
	}

	f.reviewBack(ctx)
	news := f.updateUnreadable(ctx, walk)
	if f.Mode == ModeConverge {
		news = f.evaluate(ctx, walk)
	}

	if back {
		why = "the folder is back"
	}

	// Routine scans are not worth an event. What a periodic one finds is: no event told of it.
	if why != "" && why != "start" && why != linksChanged && (why != periodic || news > 0 && walk.degraded == "") {
		f.w.log.Info("a watched folder was scanned", "job", f.Job, "path", f.Path, "reason", why, "found", news)
		f.event(ctx, "watch.rescanned", 0, map[string]any{"path": f.Path, "reason": why, "found": news})
	}
}

// inspect subscribes to the folder and all those it enters, reads them, and hands their files to
// the debouncer. The walk is nil when the folder is missing, or ctx has ended.
func (f *folder) inspect(ctx context.Context) (_ *walk, back bool) {
	// Status shows a scan that does not end as a problem.
	began := time.Now()
	f.mu.Lock()
	f.scanning = began
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.scanning = time.Time{}
		f.mu.Unlock()
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
	retries := f.nextRetries()
	walk := f.walk(ctx, root, ".", retries)
	if ctx.Err() != nil {
		return nil, false
	}

	if walk.unopened {
		f.retryAll()
	} else {
		f.forgetVanished(retries, walk)
	}
	f.linked = walk.linked
	if err := f.skipPreexisting(ctx, walk); err != nil {
		if ctx.Err() == nil {
			f.w.log.Error("what was in a folder before its job cannot be read or recorded; it is tried again", "job", f.Job, "path", f.Path, "error", err)
		}
		f.scanAt = time.Now().Add(time.Second)
		return nil, false
	}

	f.debounceFound(walk)
	took := time.Since(began)
	f.unsubscribeStale(walk)
	f.finishScan(ctx, walk, took)

	return walk, back
}

// findRoot is the folder with its owner's links resolved, so that claims do not depend on them.
func (f *folder) findRoot() (string, error) {
	root, err := f.Boundary.Resolve(f.Path)
	if err != nil {
		return "", err
	}

	info, err := f.Boundary.Stat(root)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a folder", f.Path)
	}
	return root, err
}

// openRoot opens the folder that the last scan found. It is not held open: its owner must be able to
// unmount or to replace it.
func (f *folder) openRoot() (*os.Root, error) { return f.Boundary.OpenRoot(f.root) }

// rootFound prepares for the folder at root; it says whether it was missing before.
func (f *folder) rootFound(root string) bool {
	f.root = root
	f.skipFolders()
	f.mu.Lock()
	defer f.mu.Unlock()

	back := f.missing
	f.missing, f.status.Problem = false, ""
	return back
}

// skipFolders finds the folders that are not entered.
func (f *folder) skipFolders() {
	f.skippedDirs = map[string]bool{}
	for _, dir := range append(f.destinations(), f.nestedWatches...) {
		f.skippedDirs[f.resolveLinks(dir)] = true
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			f.skippedDirs[real] = true // within the watched folder a destination may be a link
		}
	}
}

// debounceFound hands what a scan found to the debouncer, the oldest first.
func (f *folder) debounceFound(walk *walk) {
	if f.Mode == ModeConverge {
		return // its files are fingerprinted together
	}

	slices.SortFunc(walk.files, func(a, b tree.Sighting) int {
		return cmp.Or(cmp.Compare(a.Stamp.Modified, b.Stamp.Modified), cmp.Compare(a.Path, b.Path))
	})
	now := time.Now()
	for i, s := range walk.files {
		if i > 0 && s.Path == walk.files[i-1].Path {
			continue // found by several links
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
		// It may have been renamed: the system then knows one subscription by two paths, and
		// ending the old one has ended the new one too.
		f.requestScan("a folder was renamed")
	}
}

func (f *folder) finishScan(ctx context.Context, walk *walk, took time.Duration) {
	now := time.Now()
	// A large folder that is polled must not be scanned without a pause.
	f.scanAt = now.Add(f.w.rescan)
	if walk.degraded != "" {
		f.scanAt = now.Add(min(f.w.rescan, max(pollEvery, 10*took)))
	}

	f.mu.Lock()
	before := f.status.Degraded
	f.status.Degraded, f.status.LastScan = walk.degraded, now
	f.mu.Unlock()

	switch {
	case walk.degraded != "" && before == "":
		f.w.log.Warn("a watched folder is polled", "job", f.Job, "path", f.Path, "reason", walk.degraded)
		f.event(ctx, "watch.polled", 0, map[string]any{"path": f.Path, "reason": walk.degraded})
	case walk.degraded == "" && before != "":
		f.w.log.Info("a watched folder is not polled any more", "job", f.Job, "path", f.Path)
		f.event(ctx, "watch.told", 0, map[string]any{"path": f.Path})
	}
}

// updateUnreadable drops the errors that a scan does not confirm, reports new ones, and counts
// the files that were found apart from those.
func (f *folder) updateUnreadable(ctx context.Context, walk *walk) (news int) {
	f.mu.Lock()
	old := f.unreadable
	f.unreadable = map[string]string{}

	for _, s := range walk.files {
		if _, known := old[s.Path]; !known {
			news++
		}
	}

	for path, why := range old {
		if f.debouncer.Has(path) || walk.unreadable[path] != nil {
			f.unreadable[path] = why
		}
	}

	f.mu.Unlock()
	for dir, err := range walk.unreadable {
		f.reportUnreadable(ctx, dir, err)
	}

	return news
}

// descend subscribes to a folder that has just appeared, and reads what is in it already.
func (f *folder) descend(ctx context.Context, dir, name string) {
	walk := f.walk(ctx, dir, name, nil)
	walk.hint = settle.Arrived
	f.linked.merge(walk.linked)
	f.debounceFound(walk)
	for sub, err := range walk.unreadable {
		f.reportUnreadable(ctx, sub, err)
	}

	if walk.degraded != "" {
		f.requestScan("a new folder cannot be watched")
	}
}

// pollReason says why a folder is polled, for its status.
func pollReason(dir string, err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "" // the folder is gone again
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EMFILE):
		return "the system's limit of watched folders is reached (on Linux, raise fs.inotify.max_user_watches and max_user_instances); it is scanned every " + pollEvery.String() + ", and asks the system again each time"
	}
	return fmt.Sprintf("%s cannot be watched: %v; it is scanned every %s, and asks the system again each time", dir, err, pollEvery)
}

// rootMissing notes that the folder is not there, and waits for it by a subscription to the
// nearest folder above it.
func (f *folder) rootMissing(ctx context.Context, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		f.startMissing(ctx)
	}

	f.root = ""
	f.retryAll()
	f.scanAt = time.Now().Add(missingEvery)
	f.awaited = f.resolveLinks(f.Path)
	near := f.nearestExisting()
	for range 100 { // a nearer one may appear before the subscription
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

	// It may have returned before the subscription, or a link have come to its place, without an event.
	if _, again := f.findRoot(); again == nil {
		f.requestScan("the folder is back")
	} else {
		err = again
	}

	f.reportMissing(ctx, err)
}

// reportMissing tells the owner once why the folder is not watched, and again when another link is in
// the way to it.
func (f *folder) reportMissing(ctx context.Context, err error) {
	kind, said, inTheWay := "watch.missing", "a watched folder is missing", ""
	problem := fmt.Sprintf("the folder %s cannot be read (%v); it is watched again as soon as it is there", f.Path, err)
	if link, ok := errors.AsType[*nofollow.LinkError](err); ok {
		kind, said, inTheWay = linkKind, "a watched folder is not watched: a link is in the way", link.Path
		problem = fmt.Sprintf("the folder %s is not watched: %v; it is watched again then", f.Path, err)
	}

	f.mu.Lock()
	news := !f.missing || f.inTheWay != inTheWay
	f.missing, f.inTheWay, f.status.Problem = true, inTheWay, problem
	f.mu.Unlock()
	if news {
		f.w.log.Warn(said, "job", f.Job, "path", f.Path, "error", err)
		f.event(ctx, kind, 0, map[string]any{"path": f.Path, "error": problem})
	}
}

// nearestExisting is the closest folder above the missing one that exists. Behind a link that is not
// followed nothing is waited for.
func (f *folder) nearestExisting() string {
	dir := filepath.Dir(f.awaited)
	for dir != filepath.Dir(dir) {
		if info, err := f.Boundary.Stat(dir); err == nil && info.IsDir() {
			break
		}
		dir = filepath.Dir(dir)
	}

	return dir
}
