package watcher

import (
	"container/heap"
	"time"
)

// settler decides when a file is ready. It is told the time and what a file looks like,
// and has no clock, no file and no goroutine of its own.
//
//	see ─► waiting (same since …) ─► due ─► check ─┬─ the same: ready
//	          ▲                                    └─ changed: waiting again
//	          └── see, changed: the window begins anew
type settler struct {
	window time.Duration
	items  map[string]*item
	queue  deadlines
	count  uint64
	moved  time.Time // when a file was last seen to be new or to have changed
}

// item is a path that waits to settle.
type item struct {
	path  string
	last  stamp
	live  bool      // an event told of it, not a scan alone
	at    time.Time // when to look again
	order uint64    // of arrival: files that are due together are taken in this order
	index int       // in the heap
}

func newSettler(window time.Duration) *settler {
	return &settler{window: window, items: map[string]*item{}}
}

// hint is how a path came to be looked at.
type hint int

const (
	hintScan    hint = iota // a scan found it
	hintChanged             // an event says that it changed
	hintArrived             // an event says that it is new in its folder
)

// see notes what a file looks like. One that is known to have been complete before it came
// into the folder is only rechecked.
func (s *settler) see(path string, now time.Time, st stamp, h hint) {
	it, ok := s.items[path]
	if ok {
		it.live = it.live || h != hintScan
		if !st.same(it.last) {
			it.last, it.at, s.moved = st, now.Add(s.window), now
			heap.Fix(&s.queue, it.index)
		}
		return
	}

	wait := s.window
	if h == hintArrived && st.renamed(s.window) {
		wait = s.recheck()
	}

	s.count++
	s.moved = now
	it = &item{path: path, last: st, live: h != hintScan, at: now.Add(wait), order: s.count}
	s.put(it)
}

// recheck is how long a file is looked at that was renamed into the folder.
func (s *settler) recheck() time.Duration { return min(s.window/4, 50*time.Millisecond) }

func (s *settler) put(it *item) {
	s.items[it.path] = it
	heap.Push(&s.queue, it)
}

// due takes out the files to look at now, at most n.
func (s *settler) due(now time.Time, n int) []*item {
	var out []*item
	for len(s.queue) > 0 && !s.queue[0].at.After(now) && len(out) < n {
		it := heap.Pop(&s.queue).(*item)
		delete(s.items, it.path)
		out = append(out, it)
	}
	return out
}

// check says whether a file that was due is ready. One that has changed waits again.
func (s *settler) check(it *item, now time.Time, st stamp) bool {
	if st.same(it.last) {
		return true
	}
	s.moved = now
	s.again(it, now, st)
	return false
}

// again makes a file that was due wait for another window.
func (s *settler) again(it *item, now time.Time, st stamp) {
	it.last, it.at = st, now.Add(s.window)
	s.put(it)
}

// forget drops a path that is gone.
func (s *settler) forget(path string) {
	if it, ok := s.items[path]; ok {
		delete(s.items, path)
		heap.Remove(&s.queue, it.index)
	}
}

func (s *settler) waits(path string) bool { return s.items[path] != nil }

func (s *settler) len() int { return len(s.items) }

// next is when the first file is due; zero when none waits.
func (s *settler) next() time.Time {
	if len(s.queue) == 0 {
		return time.Time{}
	}
	return s.queue[0].at
}

// deadlines is a heap of items by their instant, then their order of arrival.
type deadlines []*item

func (d deadlines) Len() int { return len(d) }
func (d deadlines) Less(i, j int) bool {
	if d[i].at.Equal(d[j].at) {
		return d[i].order < d[j].order
	}
	return d[i].at.Before(d[j].at)
}
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

// Push implements heap.Interface.
func (d *deadlines) Push(x any) {
	it := x.(*item)
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
