package watcher

import (
	"errors"
	"path/filepath"
	"slices"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// subscriptions are the folders whose events the system reports, and for which watches. Two
// jobs may watch the same folder.
type subscriptions struct {
	events   *fsnotify.Watcher // nil when the system gives none
	addWatch func(dir string) error

	mu    sync.Mutex
	byDir map[string][]*folder
}

func newSubscriptions(events *fsnotify.Watcher, err error) *subscriptions {
	a := &subscriptions{events: events, byDir: map[string][]*folder{}, addWatch: func(string) error { return err }}
	if events != nil {
		a.addWatch = events.Add
	}
	return a
}

// subscribe asks the system for the events of dir. Asking again restores a subscription that
// the system has dropped.
func (a *subscriptions) subscribe(f *folder, dir string) error {
	// Registered first: an event may come before the system's call returns.
	a.mu.Lock()
	if !slices.Contains(a.byDir[dir], f) {
		a.byDir[dir] = append(a.byDir[dir], f)
	}

	a.mu.Unlock()
	err := a.addWatch(dir)
	if err != nil {
		a.unsubscribe(f, dir)
	}
	return err
}

// dirs lists the folders that f subscribes to.
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

// count is how many they are.
func (a *subscriptions) count(f *folder) int {
	a.mu.Lock()
	defer a.mu.Unlock()

	n := 0
	for _, who := range a.byDir {
		if slices.Contains(who, f) {
			n++
		}
	}
	return n
}

// unsubscribe ends subscriptions of f; the system is told once nobody else has them.
func (a *subscriptions) unsubscribe(f *folder, dirs ...string) {
	for _, dir := range dirs {
		a.mu.Lock()
		who := slices.DeleteFunc(slices.Clone(a.byDir[dir]), func(o *folder) bool { return o == f })
		if len(who) > 0 {
			a.byDir[dir] = who
		} else {
			delete(a.byDir, dir)
		}

		a.mu.Unlock()
		if len(who) == 0 && a.events != nil {
			_ = a.events.Remove(dir) // fails where the system has dropped it already, with the folder
		}
	}
}

// subscribers are the watches for an event at path: those subscribed to the folder around it,
// and those subscribed to path itself.
func (a *subscriptions) subscribers(path string) (around, itself []*folder) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byDir[filepath.Dir(path)], a.byDir[path]
}

func (a *subscriptions) close() error {
	if a.events == nil {
		return nil
	}
	if err := a.events.Close(); err != nil && !errors.Is(err, fsnotify.ErrClosed) {
		return err
	}
	return nil
}
