package watcher

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// subscriptions holds the subscribed folders and the watches that receive their events. Two jobs
// may watch the same folder.
type subscriptions struct {
	// open asks the system for a new watcher. If nil, the system is not asked again.
	open   func() (*fsnotify.Watcher, error)
	opened chan *fsnotify.Watcher // delivers the watcher to the event reader; closed by close

	mu       sync.Mutex
	events   *fsnotify.Watcher // nil while the system provides no watcher
	addWatch func(dir string) error
	byDir    map[string][]*folder
	closed   bool
}

func newSubscriptions(events *fsnotify.Watcher, err error) *subscriptions {
	a := &subscriptions{opened: make(chan *fsnotify.Watcher, 1), byDir: map[string][]*folder{}, addWatch: func(string) error { return err }}
	if events != nil {
		a.use(events)
	}
	return a
}

func (a *subscriptions) use(events *fsnotify.Watcher) {
	a.events, a.addWatch = events, events.Add
	a.opened <- events
}

// reopen asks the system for a watcher again if there is none. It reports whether the system has
// provided one now.
func (a *subscriptions) reopen() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.events != nil || a.closed || a.open == nil {
		return false
	}

	events, err := a.open()
	if err != nil {
		return false
	}
	a.use(events)
	return true
}

// subscribe asks the system for the events of dir. A repeated call restores a subscription that the
// system has dropped.
func (a *subscriptions) subscribe(f *folder, dir string) error {
	// Register first, because an event may arrive before the system call returns.
	a.mu.Lock()
	if !slices.Contains(a.byDir[dir], f) {
		a.byDir[dir] = append(a.byDir[dir], f)
	}

	add := a.addWatch
	a.mu.Unlock()
	err := add(dir)
	if err != nil {
		a.unsubscribe(f, dir)
	}
	return err
}

// reportRemoved reports the subscribed folders in dir that are gone. fsnotify does not report the
// removal of a folder if its parent is watched as well. The parent does not report it either, if it
// was subscribed to after the removal.
func (a *subscriptions) reportRemoved(dir string) {
	gone := map[string][]*folder{}
	a.mu.Lock()
	for sub, who := range a.byDir {
		if filepath.Dir(sub) != dir {
			continue
		}
		if _, err := os.Lstat(sub); errors.Is(err, fs.ErrNotExist) {
			gone[sub] = who
		}
	}
	a.mu.Unlock()

	for sub, who := range gone {
		for _, f := range who {
			f.hints.noteRemoved(sub, false)
		}
	}
}

// dirs returns the folders that f subscribes to.
func (a *subscriptions) dirs(f *folder) []string {
	a.mu.Lock()
	defer a.mu.Unlock()

	var out []string
	for dir, who := range a.byDir {
		if slices.Contains(who, f) {
			out = append(out, dir)
		}
	}
	return out
}

// unsubscribe ends subscriptions of f. It ends a subscription in the system if no other folder uses
// it.
func (a *subscriptions) unsubscribe(f *folder, dirs ...string) {
	for _, dir := range dirs {
		a.mu.Lock()
		who := slices.DeleteFunc(slices.Clone(a.byDir[dir]), func(o *folder) bool { return o == f })
		if len(who) > 0 {
			a.byDir[dir] = who
		} else {
			delete(a.byDir, dir)
		}

		events := a.events
		a.mu.Unlock()
		if len(who) == 0 && events != nil {
			_ = events.Remove(dir) // returns an error if the system has dropped it with the folder
		}
	}
}

// subscribers returns the watches for an event at path: those subscribed to the folder around it,
// and those subscribed to path itself.
func (a *subscriptions) subscribers(path string) (around, itself []*folder) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byDir[filepath.Dir(path)], a.byDir[path]
}

func (a *subscriptions) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.closed = true
		close(a.opened)
	}
	if a.events == nil {
		return nil
	}
	if err := a.events.Close(); err != nil && !errors.Is(err, fsnotify.ErrClosed) {
		return err
	}
	return nil
}
