package tool

import (
	"slices"
	"sync"
)

// Unlisted is the set of tools of a run that models are not told of at first. Registries made from
// one another share it. A nil Unlisted is empty.
type Unlisted struct {
	names []string // sorted

	mu     sync.Mutex
	loaded []string // those of names that are listed by now, in the order in which they were loaded
}

// NewUnlisted makes a set of names. Of those, loaded were loaded by an earlier attempt.
func NewUnlisted(names []string, loaded ...string) *Unlisted {
	u := &Unlisted{names: slices.Sorted(slices.Values(names))}
	for _, name := range loaded {
		u.load(name)
	}
	return u
}

// Names lists the tools, sorted. The caller must not change it.
func (u *Unlisted) Names() []string {
	if u == nil {
		return nil
	}
	return u.names
}

// Loaded lists the loaded tools in the order in which they were loaded. The caller must not change it.
func (u *Unlisted) Loaded() []string {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clip(u.loaded)
}

// Load lists a tool from the next request on. Tools that are listed anyway are ignored.
func (u *Unlisted) Load(name string) { u.load(name) }

// load reports whether the tool was not listed before.
func (u *Unlisted) load(name string) bool {
	if !u.has(name) {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if slices.Contains(u.loaded, name) {
		return false
	}
	u.loaded = append(u.loaded, name)
	return true
}

// has reports whether a tool is in the set, loaded or not.
func (u *Unlisted) has(name string) bool {
	if u == nil {
		return false
	}
	_, ok := slices.BinarySearch(u.names, name)
	return ok
}
