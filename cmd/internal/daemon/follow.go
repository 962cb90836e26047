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
)

const (
	debounceFor = 300 * time.Millisecond // how long the files have to hold still
	checkEvery  = 30 * time.Second       // between looks when no event came
	maxLinks    = 40                     // on the way to one file
	maxGlobs    = 512                    // folders that are watched for one pattern
)

// follower hears what happens to the files of a configuration. Events are hints: they say
// when to look, and a look now and then makes up for those that were lost.
//
// A file is watched through its folder, because one that is replaced is another file; so is
// each link on the way to it, and the place where something on the way is missing.
type follower struct {
	log     *slog.Logger
	follows bool              // false: the configuration came through a pipe, once
	events  *fsnotify.Watcher // nil: there are only looks
	watched map[string]os.FileInfo
	paths   map[string]bool // whose change changes what is read
	globs   []glob
	warned  bool // a folder could not be watched, which was said

	settleAt, checkAt time.Time // zero settleAt: nothing was heard
	seen              string    // digest when something was first heard, or last looked at
}

// glob is a pattern of an include with its folder's links resolved.
type glob struct {
	pattern, base string
	deep          bool // it takes files of folders inside base
}

// run follows the files, and reads them when they have changed or somebody asks.
func (r *reloader) run(ctx context.Context) {
	f := &r.files
	f.log, f.watched = r.d.log, map[string]os.FileInfo{}
	var heard <-chan fsnotify.Event
	var lost <-chan error
	if f.follows {
		events, err := fsnotify.NewWatcher()
		if err != nil {
			f.log.Warn("the files of the configuration are looked at every 30 s; the system gives no file-system watcher", "error", err)
		} else {
			defer func() {
				if err := events.Close(); err != nil {
					f.log.Warn("the file-system watcher of the configuration did not close", "error", err)
				}
			}()
			f.events, heard, lost = events, events.Events, events.Errors
		}

		r.watchFolders()
		r.check(ctx)
	}

	timer := time.NewTimer(0)
	defer timer.Stop()

	for {
		if f.follows {
			timer.Reset(time.Until(f.nextCheck()))
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case e := <-heard:
			if f.relevant(e) {
				r.debounce()
			}
		case err := <-lost:
			f.log.Debug("events of the configuration's files were lost", "error", err)
			r.debounce()
		case <-timer.C:
			r.check(ctx)
		case <-r.requested:
			r.reload(ctx)
		case answer := <-r.requests:
			answer <- r.reload(ctx)
		}
	}
}

// nextCheck is when to look again.
func (f *follower) nextCheck() time.Time {
	if !f.settleAt.IsZero() && f.settleAt.Before(f.checkAt) {
		return f.settleAt
	}
	return f.checkAt
}

// debounce notes that something happened; what it is shows when the files hold still.
func (r *reloader) debounce() {
	if r.files.settleAt.IsZero() {
		r.files.seen = r.sources.Now().Digest()
	}
	r.files.settleAt = time.Now().Add(debounceFor)
}

// check reads the configuration if its files have changed and hold still, and if something
// else than the files may have been wrong with it.
func (r *reloader) check(ctx context.Context) {
	f, now := &r.files, time.Now()
	due := !now.Before(f.checkAt)
	if due {
		f.checkAt = now.Add(checkEvery)
	}
	if f.settleAt.After(now) {
		return
	}

	r.watchFolders()
	is := r.sources.Now().Digest()
	switch {
	case is != r.attempted && (f.settleAt.IsZero() || is != f.seen): // nobody told, or it goes on
		f.seen, f.settleAt = is, now.Add(debounceFor)
	case is != r.attempted, due && len(r.problemsOnDisk()) > 0:
		f.settleAt = time.Time{}
		r.reload(ctx)
	default:
		f.settleAt = time.Time{}
	}
}

// watchFolders watches the folders that matter to what is read now.
func (r *reloader) watchFolders() {
	f := &r.files
	if f.events == nil {
		return
	}

	folders := f.scan(r.sources)
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

		if err == nil {
			f.watched[dir] = info
		} else if !f.warned && !os.IsNotExist(err) {
			f.warned = true
			f.log.Warn("a folder of the configuration cannot be watched, and is looked at every 30 s", "folder", dir, "error", err)
		}
	}
}

func (f *follower) unwatch(dir string) {
	delete(f.watched, dir)
	_ = f.events.Remove(dir) // the system may have let go of it by itself
}

// scan finds the names that matter and the folders that they are in.
func (f *follower) scan(s *config.Sources) map[string]bool {
	f.paths, f.globs = map[string]bool{}, nil
	folders := map[string]bool{}
	along := func(path string) {
		for _, name := range resolutionPath(path) {
			f.paths[name] = true
			folders[filepath.Dir(name)] = true
		}
	}

	for _, path := range s.Files() {
		along(path)
	}

	for _, pattern := range s.Globs() {
		base, rest := doublestar.SplitPattern(filepath.ToSlash(pattern))
		base = filepath.FromSlash(base)
		along(base)
		base, err := filepath.EvalSymlinks(base)
		if err != nil {
			continue // it is looked for
		}

		g := glob{pattern: filepath.Join(base, filepath.FromSlash(rest)), base: base, deep: strings.Contains(rest, "/")}
		f.globs = append(f.globs, g)
		for _, dir := range g.folders() {
			folders[dir] = true
		}
	}

	for _, dir := range s.Trees() {
		along(dir)
		base, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue
		}

		g := glob{pattern: filepath.Join(base, "**", "{SKILL,skill}.md"), base: base, deep: true}
		f.globs = append(f.globs, g)
		for _, dir := range g.folders() {
			folders[dir] = true
		}
	}

	return folders
}

// folders are those in which a file can come to match.
func (g glob) folders() []string {
	out := []string{g.base}
	if !g.deep {
		return out
	}

	_ = filepath.WalkDir(g.base, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil || len(out) >= maxGlobs:
			return filepath.SkipDir // the look every 30 s finds what is in it
		case e.IsDir() && path != g.base:
			out = append(out, path)
		}
		return nil
	})

	return out
}

// resolutionPath are the names that decide what a path means: the links on the way, and the file or
// else the first name that is missing.
func resolutionPath(path string) []string {
	var names []string
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

		rel, err := filepath.Rel(g.base, e.Name)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		if info, err := os.Stat(e.Name); err == nil && info.IsDir() {
			return true // a folder in which files may match
		}
	}

	return false
}
