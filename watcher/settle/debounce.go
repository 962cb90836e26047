package settle

import (
	"container/heap"
	"time"

	"rouse/watcher/fsys"
)

// Debouncer decides when a file is ready. It has no clock and reads no file: callers pass the time
// and the stamp of the file.
//
//	observe ─► waiting (same since …) ─► due ─► confirm ─┬─ the same: ready
//	              ▲                                      └─ changed: waiting again
//	              └── observe, changed: the window restarts
type Debouncer struct {
	window     time.Duration
	items      map[string]*Pending
	queue      deadlines
	count      uint64
	LastChange time.Time // time of the last observation of a new or changed file
}

// Pending is a file that waits until it has settled.
type Pending struct {
	Path      string
	Last      fsys.Stamp
	FromEvent bool      // whether an event reported it, and not only a scan
	due       time.Time // end of its window
	// order is the order of arrival. Files that are due together leave in this order.
	order uint64
	index int // index in the heap
}

// NewDebouncer returns a debouncer with a settle window.
func NewDebouncer(window time.Duration) *Debouncer {
	return &Debouncer{window: window, items: map[string]*Pending{}}
}

// Hint is the way in which a file was found.
type Hint int

const (
	Scanned Hint = iota // a scan found it
	Changed             // an event reported a change
	Arrived             // an event reported that it is new in its folder
)

// Observe records the stamp of a file. A file that was complete before it came into the folder does
// not wait for a whole window.
func (s *Debouncer) Observe(path string, now time.Time, st fsys.Stamp, h Hint) {
	it, ok := s.items[path]
	if ok {
		it.FromEvent = it.FromEvent || h != Scanned
		if !st.Same(it.Last) {
			it.Last, it.due, s.LastChange = st, now.Add(s.window), now
			heap.Fix(&s.queue, it.index)
		}
		return
	}

	// The last write is at least a window older than the arrival, so the file was complete.
	wait := s.window
	if h == Arrived && st.CompleteBefore(s.window) {
		wait = s.recheckDelay()
	}

	s.count++
	s.LastChange = now
	it = &Pending{Path: path, Last: st, FromEvent: h != Scanned, due: now.Add(wait), order: s.count}
	s.put(it)
}

// recheckDelay returns the wait of a file that was renamed into the folder.
func (s *Debouncer) recheckDelay() time.Duration { return min(s.window/4, 50*time.Millisecond) }

func (s *Debouncer) put(it *Pending) {
	s.items[it.Path] = it
	heap.Push(&s.queue, it)
}

// Dequeue removes and returns up to n files at the end of their windows.
func (s *Debouncer) Dequeue(now time.Time, n int) []*Pending {
	var out []*Pending
	for len(s.queue) > 0 && !s.queue[0].due.After(now) && len(out) < n {
		it := heap.Pop(&s.queue).(*Pending)
		delete(s.items, it.Path)
		out = append(out, it)
	}
	return out
}

// Confirm reports whether a dequeued file is ready. A file with another stamp waits again.
func (s *Debouncer) Confirm(it *Pending, now time.Time, st fsys.Stamp) bool {
	if st.Same(it.Last) {
		return true
	}
	s.LastChange = now
	s.Requeue(it, now, st)
	return false
}

// Requeue makes a dequeued file wait for another window after now.
func (s *Debouncer) Requeue(it *Pending, now time.Time, st fsys.Stamp) {
	it.Last, it.due = st, now.Add(s.window)
	s.put(it)
}

// Remove drops a file that is gone.
func (s *Debouncer) Remove(path string) {
	if it, ok := s.items[path]; ok {
		delete(s.items, path)
		heap.Remove(&s.queue, it.index)
	}
}

// Has reports whether a file is waiting.
func (s *Debouncer) Has(path string) bool { return s.items[path] != nil }

// Len returns the number of waiting files.
func (s *Debouncer) Len() int { return len(s.items) }

// NextDue returns the time at which the first file is due, or the zero time if no file waits.
func (s *Debouncer) NextDue() time.Time {
	if len(s.queue) == 0 {
		return time.Time{}
	}
	return s.queue[0].due
}

// deadlines is a heap of files, ordered by the end of their windows and then by their arrival.
type deadlines []*Pending

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
	it := x.(*Pending)
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
