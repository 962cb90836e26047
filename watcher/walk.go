package watcher

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"rouse/internal/nofollow"
	"rouse/watcher/fsys"
	"rouse/watcher/settle"
	"rouse/watcher/tree"
)

const (
	walkers = 4   // goroutines that read folders and stamps, in addition to the folder's own
	page    = 512 // folder entries that a goroutine reads at a time
)

// walk holds the result of a scan.
type walk struct {
	hint       settle.Hint
	files      []tree.Sighting // files that may need a run
	linked     linked
	entered    map[string]bool
	unreadable map[string]error
	degraded   string // reason why events are unreliable
	unopened   bool   // the folder was found but could not be opened
	// torn is set if an entry vanished during the walk. The files found may never have existed at
	// the same time.
	torn bool
}

// walker reads a tree level by level, with several goroutines. They may read the fields of the
// folder without its lock: the folder's own goroutine, the only one that writes them, takes part in
// the walk and waits for its end.
type walker struct {
	f     *folder
	root  *os.Root // all reads go through it, so that no link leads out of the folder
	retry map[string]bool
	lanes chan struct{} // semaphore for the goroutines of group
	group sync.WaitGroup

	mu    sync.Mutex
	dirs  []entry // folders of the next level
	links []entry // links that were found and not yet followed
	found *walk
}

// entry is a folder or link in a tree, with its name relative to the root.
type entry struct{ path, name string }

// walk reads the folder dir, called name relative to the root. If the watch is recursive, it also
// reads the subfolders. It subscribes to each folder before reading it, so that no file is missed.
// It omits known files unless they are in retry.
func (f *folder) walk(ctx context.Context, dir, name string, retry map[string]bool) *walk {
	k := &walker{f: f, found: &walk{linked: newLinked(), entered: map[string]bool{}, unreadable: map[string]error{}}, retry: retry, lanes: make(chan struct{}, walkers), dirs: []entry{{dir, name}}}
	var err error
	if k.root, err = f.openRoot(); err != nil {
		k.rootFailed(dir, err)
		return k.found
	}
	defer k.root.Close()

	if name := fsys.Network(dir); name != "" {
		k.found.degraded = "it is on a network file system (" + name + "), which does not report all changes; it is scanned every " + pollEvery.String()
	}

	k.run(ctx)
	k.follow(ctx)
	return k.found
}

// run enters the folders of the next level, then their subfolders, until there are no more.
func (k *walker) run(ctx context.Context) {
	for len(k.dirs) > 0 {
		level := k.dirs
		k.dirs = nil
		for _, d := range level {
			k.do(func() { k.enterDir(ctx, d.path, d.name) })
		}
		k.group.Wait()
	}
}

// do runs a task in its own goroutine or, if all lanes are busy, at once.
func (k *walker) do(task func()) {
	select {
	case k.lanes <- struct{}{}:
		k.group.Go(func() {
			task()
			<-k.lanes
		})
	default:
		task()
	}
}

// rootFailed records that the folder was found but could not be opened.
func (k *walker) rootFailed(dir string, err error) {
	k.found.unopened = true
	k.failed(k.f.root, err)
	if _, ok := errors.AsType[*nofollow.LinkError](err); ok {
		k.f.hints.requestScan(linkInPlace)
	} else {
		k.subscribe(dir) // an event then reports when it becomes readable
	}
}

// subscribe subscribes to a folder. If there are no events, the watch is polled.
func (k *walker) subscribe(dir string) {
	armErr := k.f.w.subs.subscribe(k.f, dir)
	// If a subfolder is gone, its parent reports it. The removal of the root is not reported. The
	// root is still read, because it was opened while it existed.
	if errors.Is(armErr, fs.ErrNotExist) && dir == k.f.root {
		k.f.hints.requestScan("the folder went away")
	}

	k.mu.Lock()
	k.found.entered[dir] = true
	if armErr != nil && k.found.degraded == "" {
		k.found.degraded = pollReason(dir, armErr)
	}
	k.mu.Unlock()
}

// enterDir subscribes to a folder and reads it, page by page.
func (k *walker) enterDir(ctx context.Context, dir, name string) {
	if ctx.Err() != nil {
		return
	}

	k.subscribe(dir)
	if own, ok := fsys.RelInside(k.f.root, dir); ok && own != name {
		k.mu.Lock()
		k.found.linked.addAlias(dir, name)
		k.mu.Unlock()
	}

	d, err := fsys.HandleIn(k.root, dir).Open()
	if err != nil {
		k.failed(dir, err)
		return
	}
	defer d.Close()

	for ctx.Err() == nil {
		entries, err := d.ReadDir(page)
		if len(entries) > 0 {
			k.do(func() { k.visitPage(ctx, dir, name, entries) })
		}

		if err != nil {
			if !errors.Is(err, io.EOF) {
				k.failed(dir, err)
			}
			return
		}
	}
}

// visitPage sorts a page of entries into files, links and folders to enter.
func (k *walker) visitPage(ctx context.Context, dir, name string, entries []fs.DirEntry) {
	var files []tree.Sighting
	var dirs, links []entry
	own, ok := fsys.RelInside(k.f.root, dir)
	byLink := ok && own != name
	for _, d := range entries {
		path, name := filepath.Join(dir, d.Name()), joinName(name, d.Name())
		switch {
		case ctx.Err() != nil || byLink && k.f.Excludes(joinName(own, d.Name())):
		case d.IsDir():
			if k.f.Recursive && k.f.enters(path, name) {
				dirs = append(dirs, entry{path, name})
			}
		case d.Type()&fs.ModeSymlink != 0:
			if k.f.FollowSymlinks {
				links = append(links, entry{path, name})
			}
		case d.Type().IsRegular() && k.f.Selects(name):
			info, err := d.Info()
			if err != nil {
				k.failed(path, err)
				continue
			}

			if st := fsys.StampOf(info); k.mayNeedWork(path, st) {
				files = append(files, tree.Sighting{Path: path, Stamp: st})
			}
		}
	}

	k.mu.Lock()
	k.found.files = append(k.found.files, files...)
	k.dirs = append(k.dirs, dirs...)
	k.links = append(k.links, links...)
	k.mu.Unlock()
}

// mayNeedWork reports whether a file may need a run. It uses only data in memory.
func (k *walker) mayNeedWork(path string, st fsys.Stamp) bool {
	if k.f.Mode == ModeConverge || k.retry[path] {
		return true
	}
	_, known := k.f.files.known.Get(k.f.files.stampHasher.Of(path, st))
	return !known && !k.f.files.isPreexisting(path, st) && !k.f.files.hashing[path] && !k.f.files.debouncer.Has(path) && !k.f.files.batch.has(path, st)
}

func (k *walker) failed(path string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if errors.Is(err, fs.ErrNotExist) {
		k.found.torn = true
	} else {
		k.found.unreadable[path] = err
	}
}
