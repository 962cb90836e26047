package daemon

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/fsnotify/fsnotify"

	"rouse/cmd/internal/config"
	"rouse/internal/fspath"
)

const (
	debounceFor = 300 * time.Millisecond // how long the files have to be unchanged
	checkEvery  = 30 * time.Second       // between checks when no event came
	pollEvery   = 2 * time.Second        // between checks where the system gives no events
	maxLinks    = 40                     // followed on the way to one file
	maxGlobs    = 512                    // folders watched for one pattern
)

// follower watches the files of a configuration. Events are hints: they say when to check, and a
// check now and then makes up for those that were lost.
//
// A file is watched through its folder, because editors replace a file rather than write to it; so
// is each link on the way to it, and the place where something on the way is missing.
type follower struct {
	log     *slog.Logger
	follows bool              // false: the configuration came through a pipe, once
	events  *fsnotify.Watcher // nil: the system gives none, and each check asks it again
	watched map[string]os.FileInfo
	paths   map[string]bool // names that decide what is read
	globs   []glob
	blind   bool // a folder cannot be watched: its files are polled
	warned  bool // and this was logged

	settleAt, checkAt time.Time // zero settleAt: no event is pending
	seen              string    // digest at the first event, or at the last check
}

// glob is a pattern of an include with its folder's links resolved.
type glob struct {
	pattern, base string
	deep          bool // it matches files in folders below base
}

// run follows the files, and reads them when they have changed or a reload was requested.
func (r *reloader) run(ctx context.Context) {
	f := &r.files
	f.log, f.watched = r.d.log, map[string]os.FileInfo{}
	defer f.close()
	if f.follows {
		// The files may have changed since they were read at the start; from now on there are events.
		r.watchFolders()
		r.check(ctx)
	}

	timer := time.NewTimer(0)
	defer timer.Stop()

	for {
		timer.Reset(time.Until(f.nextCheck()))
		changes, lost := f.channels()
		select {
		case <-ctx.Done():
			return
		case e := <-changes:
			if f.relevant(e) {
				r.debounce()
			}
		case err := <-lost:
			f.log.Debug("events of the configuration's files were lost", "error", err)
			r.debounce()
		case <-timer.C:
			r.check(ctx)
			r.followZone(ctx)
		case <-r.requested:
			r.d.supervision.reload(ctx, func() { r.reload(ctx) })
		case <-r.calendars:
			r.recalculate(ctx)
		case done := <-r.checks:
			r.d.supervision.reload(ctx, func() { r.checkNow(ctx) })
			close(done)
		case answer := <-r.requests:
			r.d.supervision.reload(ctx, func() { answer <- r.reload(ctx) })
		}
	}
}

// open asks the system for a file-system watcher. It reports whether there is one.
func (f *follower) open() bool {
	if f.events != nil {
		return true
	}

	events, err := fsnotify.NewWatcher()
	switch {
	case err == nil:
		f.events = events
		if f.blind {
			f.log.Info("the system gives a file-system watcher for the files of the configuration again")
		}
	case !f.blind: // once is enough
		f.log.Warn("the system gives no file-system watcher; the files of the configuration are polled until it does", "every", pollEvery, "error", err)
	}
	f.blind = err != nil
	return err == nil
}

func (f *follower) close() {
	if f.events == nil {
		return
	}
	if err := f.events.Close(); err != nil {
		f.log.Warn("the file-system watcher of the configuration did not close", "error", err)
	}
}

// channels returns the channels of the file-system watcher. Without one both are nil and never ready.
func (f *follower) channels() (changes <-chan fsnotify.Event, lost <-chan error) {
	if f.events == nil {
		return nil, nil
	}
	return f.events.Events, f.events.Errors
}

// nextCheck is when to check again.
func (f *follower) nextCheck() time.Time {
	if !f.settleAt.IsZero() && f.settleAt.Before(f.checkAt) {
		return f.settleAt
	}
	return f.checkAt
}

// interval is how long to wait for events before looking without one.
func (f *follower) interval() time.Duration {
	if f.blind {
		return pollEvery
	}
	return checkEvery
}

// debounce notes an event; what it means is decided once the files are unchanged for a while.
func (r *reloader) debounce() {
	if r.files.settleAt.IsZero() {
		r.files.seen = r.sources.Now().Digest()
	}
	// Each event starts the wait again: an editor or git writes several files in a row.
	r.files.settleAt = time.Now().Add(debounceFor)
}

// check reads the configuration if its files have changed and no longer do, and now and then if it
// has problems that something else than its files may have solved.
func (r *reloader) check(ctx context.Context) {
	f, now := &r.files, time.Now()
	due := !now.Before(f.checkAt)
	if due {
		f.checkAt = now.Add(f.interval())
	}
	if f.settleAt.After(now) || !f.follows {
		return
	}

	r.watchFolders()
	is := r.sources.Now().Digest()
	switch {
	case is != r.attempted && (f.settleAt.IsZero() || is != f.seen):
		// A change without an event, or one that goes on: wait until two checks agree.
		f.seen, f.settleAt = is, now.Add(debounceFor)
	case is != r.attempted, due && len(r.problemsOnDisk()) > 0:
		// With problems also unchanged files are read again: a missing secret or a folder may be
		// there now.
		f.settleAt = time.Time{}
		r.reload(ctx)
	default:
		f.settleAt = time.Time{}
	}
}

// watchFolders watches the folders that matter to what is read now.
func (r *reloader) watchFolders() {
	f := &r.files
	if !f.open() {
		return
	}

	folders := f.scan(r.sources)
	f.blind = false
	// Removed first, since the number of watches is limited by the system.
	for dir := range f.watched {
		if !folders[dir] {
			f.unwatch(dir)
		}
	}

	for dir := range folders {
		info, err := os.Stat(dir)
		if old := f.watched[dir]; old != nil {
			if err == nil && os.SameFile(old, info) {
				continue
			}
			f.unwatch(dir) // another folder has its name now
		}

		if err == nil {
			err = f.events.Add(dir)
		}

		switch {
		case err == nil:
			f.watched[dir] = info
		case os.IsNotExist(err):
			// No problem: its parent is watched.
		default:
			f.blind = true
			if !f.warned {
				f.warned = true // once is enough
				f.log.Warn("a folder of the configuration cannot be watched, and is polled", "folder", dir, "every", pollEvery, "error", err)
			}
		}
	}
}

func (f *follower) unwatch(dir string) {
	delete(f.watched, dir)
	_ = f.events.Remove(dir) // fails for a folder that is gone, which the system has dropped itself
}

// scan finds the names that matter and the folders that they are in.
func (f *follower) scan(s *config.Sources) map[string]bool {
	f.paths, f.globs = map[string]bool{}, nil
	folders := map[string]bool{}
	addPath := func(path string) {
		for _, name := range resolutionPath(path) {
			f.paths[name] = true
			folders[filepath.Dir(name)] = true
		}
	}

	for _, path := range s.Files() {
		addPath(path)
	}

	for _, pattern := range s.Globs() {
		base, rest := doublestar.SplitPattern(filepath.ToSlash(pattern))
		base = filepath.FromSlash(base)
		addPath(base)
		// Events name the real folder, so the pattern has to as well.
		base, err := filepath.EvalSymlinks(base)
		if err != nil {
			continue // missing: addPath watches the place where it would appear
		}

		g := glob{pattern: filepath.Join(base, filepath.FromSlash(rest)), base: base, deep: strings.Contains(rest, "/")}
		f.globs = append(f.globs, g)
		for _, dir := range g.folders() {
			folders[dir] = true
		}
	}

	for _, dir := range s.Trees() {
		addPath(dir)
		base, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue
		}

		g := glob{pattern: filepath.Join(base, "**", "{SKILL.md,skill.md,manifest.json,module.ts,docs.md,index.json}"), base: base, deep: true}
		f.globs = append(f.globs, g)
		for _, dir := range g.folders() {
			folders[dir] = true
		}
	}

	return folders
}

// folders are those in which a matching file can appear.
func (g glob) folders() []string {
	out := []string{g.base}
	if !g.deep {
		return out
	}

	_ = filepath.WalkDir(g.base, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil || len(out) >= maxGlobs:
			return filepath.SkipDir // the regular check covers what is not watched
		case e.IsDir() && path != g.base:
			out = append(out, path)
		}
		return nil
	})

	return out
}

// resolutionPath lists the names that decide what a path leads to: the links on the way, and the
// file itself or the first name that is missing.
func resolutionPath(path string) []string {
	var names []string
	// Bounded as in the kernel, because links can form a loop.
	for range maxLinks {
		at := filepath.VolumeName(path) + string(filepath.Separator)
		parts := strings.Split(strings.TrimPrefix(path, at), string(filepath.Separator))
		link := ""
		for i, part := range parts {
			next := filepath.Join(at, part)
			info, err := os.Lstat(next)
			if err != nil {
				return append(names, next)
			}

			if info.Mode()&fs.ModeSymlink != 0 {
				names = append(names, next)
				if link, err = os.Readlink(next); err != nil {
					return names
				}

				if !filepath.IsAbs(link) {
					link = filepath.Join(at, link)
				}

				// Start over from the target of the link, which may contain links itself.
				path = filepath.Join(append([]string{link}, parts[i+1:]...)...)
				break
			}

			at = next
		}
		if link == "" {
			return append(names, path)
		}
	}

	return names
}

// relevant says whether an event may mean another configuration.
func (f *follower) relevant(e fsnotify.Event) bool {
	if f.paths[e.Name] || f.watched[e.Name] != nil {
		return true
	}

	for _, g := range f.globs {
		if ok, err := doublestar.PathMatch(g.pattern, e.Name); ok && err == nil {
			return true
		}
		if !g.deep || !e.Has(fsnotify.Create) {
			continue
		}

		if !fspath.Within(e.Name, g.base) {
			continue
		}
		if info, err := os.Stat(e.Name); err == nil && info.IsDir() {
			return true // a new folder, in which files may match already
		}
	}

	return false
}
