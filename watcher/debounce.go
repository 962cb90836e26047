package watcher

import (
	"container/heap"
	"time"

	"rouse/watcher/fsys"
)

// debouncer decides when a file is ready. It is given the time and what a file looks like,
// and has no clock, no file and no goroutine of its own.
//
//	observe ─► waiting (same since …) ─► due ─► confirm ─┬─ the same: ready
//	              ▲                                      └─ changed: waiting again
//	              └── observe, changed: the window restarts
type debouncer struct {
	window     time.Duration
	items      map[string]*pendingFile
	queue      deadlines
	count      uint64
	lastChange time.Time // when a file was last seen to be new or changed
}

// pendingFile is a path that waits to settle.
type pendingFile struct {
	path      string
	last      fsys.Stamp
	fromEvent bool      // an event named it, not only a scan
	due       time.Time // when its window ends
	order     uint64    // of arrival: files that are due together leave in this order
	index     int       // in the heap
}

func newDebouncer(window time.Duration) *debouncer {
	return &debouncer{window: window, items: map[string]*pendingFile{}}
}

// hint is how a path came to be looked at.
type hint int

const (
	hintScan    hint = iota // a scan found it
	hintChanged             // an event says that it changed
	hintArrived             // an event says that it is new in its folder
)

// observe notes what a file looks like. One that was complete before it came into the folder
// does not wait for a whole window.
func (s *debouncer) observe(path string, now time.Time, st fsys.Stamp, h hint) {
	it, ok := s.items[path]
	if ok {
		it.fromEvent = it.fromEvent || h != hintScan
		if !st.Same(it.last) {
			it.last, it.due, s.lastChange = st, now.Add(s.window), now
			heap.Fix(&s.queue, it.index)
		}
		return
	}

	// Its last write is a window or more older than its arrival, so nobody was writing to it.
	wait := s.window
	if h == hintArrived && st.CompleteBefore(s.window) {
		wait = s.recheckDelay()
	}

	s.count++
	s.lastChange = now
	it = &pendingFile{path: path, last: st, fromEvent: h != hintScan, due: now.Add(wait), order: s.count}
	s.put(it)
}

// recheckDelay is the window of a file that was renamed into the folder.
func (s *debouncer) recheckDelay() time.Duration { return min(s.window/4, 50*time.Millisecond) }

func (s *debouncer) put(it *pendingFile) {
	s.items[it.path] = it
	heap.Push(&s.queue, it)
}

// dequeueDue removes and returns the files whose window is over, at most n.
func (s *debouncer) dequeueDue(now time.Time, n int) []*pendingFile {
	var out []*pendingFile
	for len(s.queue) > 0 && !s.queue[0].due.After(now) && len(out) < n {
		it := heap.Pop(&s.queue).(*pendingFile)
		delete(s.items, it.path)
		out = append(out, it)
	}
	return out
}

// confirm says whether a file that was due is ready, given what it looks like now. One that has
// changed waits again.
func (s *debouncer) confirm(it *pendingFile, now time.Time, st fsys.Stamp) bool {
	if st.Same(it.last) {
		return true
	}
	s.lastChange = now
	s.requeue(it, now, st)
	return false
}

// requeue makes a file that was due wait for another window after now.
func (s *debouncer) requeue(it *pendingFile, now time.Time, st fsys.Stamp) {
	it.last, it.due = st, now.Add(s.window)
	s.put(it)
}

// remove drops a path that is gone.
func (s *debouncer) remove(path string) {
	if it, ok := s.items[path]; ok {
		delete(s.items, path)
		heap.Remove(&s.queue, it.index)
	}
}

func (s *debouncer) has(path string) bool { return s.items[path] != nil }

func (s *debouncer) len() int { return len(s.items) }

// nextDue is when the first file is due; zero when none waits.
func (s *debouncer) nextDue() time.Time {
	if len(s.queue) == 0 {
		return time.Time{}
	}
	return s.queue[0].due
}

// deadlines is a heap of items by their instant, then their order of arrival.
type deadlines []*pendingFile

func (d deadlines) Len() int { return len(d) }
func (d deadlines) Less(i, j int) bool {
	if d[i].due.Equal(d[j].due) {
		return d[i].order < d[j].order
	}
	return d[i].due.Before(d[j].due)
}
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

// Push implements heap.Interface.
func (d *deadlines) Push(x any) {
	it := x.(*pendingFile)
	it.index = len(*d)
	*d = append(*d, it)
}

// Pop implements heap.Interface.
func (d *deadlines) Pop() any {
	old := *d
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*d = old[:len(old)-1]
	return it
}
