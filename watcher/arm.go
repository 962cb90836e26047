package watcher

import (
	"errors"
	"path/filepath"
	"slices"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// arms is which folders of the system are watched, and for whom. Two jobs may watch the
// same one.
type arms struct {
	events *fsnotify.Watcher // nil when the system gives none
	add    func(dir string) error

	mu     sync.Mutex
	wanted map[string][]*folder
}

func newArms(events *fsnotify.Watcher, err error) *arms {
	a := &arms{events: events, wanted: map[string][]*folder{}, add: func(string) error { return err }}
	if events != nil {
		a.add = events.Add
	}
	return a
}

// arm asks to be told of what happens in dir. Asking again heals a watch that the system
// has dropped.
func (a *arms) arm(f *folder, dir string) error {
	a.mu.Lock()
	if !slices.Contains(a.wanted[dir], f) {
		a.wanted[dir] = append(a.wanted[dir], f)
	}

	a.mu.Unlock()
	err := a.add(dir)
	if err != nil {
		a.disarm(f, dir)
	}
	return err
}

// armed lists what is watched for f.
func (a *arms) armed(f *folder) []string {
	a.mu.Lock()
	defer a.mu.Unlock()

	var out []string
	for dir, who := range a.wanted {
		if slices.Contains(who, f) {
			out = append(out, dir)
		}
	}
	return out
}

// count is how many that are.
func (a *arms) count(f *folder) int {
	a.mu.Lock()
	defer a.mu.Unlock()

	n := 0
	for _, who := range a.wanted {
		if slices.Contains(who, f) {
			n++
		}
	}
	return n
}

// disarm ends it.
func (a *arms) disarm(f *folder, dirs ...string) {
	for _, dir := range dirs {
		a.mu.Lock()
		who := slices.DeleteFunc(slices.Clone(a.wanted[dir]), func(o *folder) bool { return o == f })
		if len(who) > 0 {
			a.wanted[dir] = who
		} else {
			delete(a.wanted, dir)
		}

		a.mu.Unlock()
		if len(who) == 0 && a.events != nil {
			_ = a.events.Remove(dir) // often the system has dropped it already, with the folder
		}
	}
}

// heard are those to tell of an event at path, and those whose armed folder it is itself.
func (a *arms) heard(path string) (around, itself []*folder) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wanted[filepath.Dir(path)], a.wanted[path]
}

func (a *arms) close() error {
	if a.events == nil {
		return nil
	}
	if err := a.events.Close(); err != nil && !errors.Is(err, fsnotify.ErrClosed) {
		return err
	}
	return nil
}
