package watcher

import (
	"container/heap"
	"time"
)

// pending are the paths that may have changed, by the instant at which to look at them.
// One heap serves all; a path that changes again moves back.
type pending struct {
	items map[key]*waiting
	heap  deadlines
}

type key struct{ job, path string }

type waiting struct {
	key
	at       time.Time
	last     stamp // as it was when it was last looked at
	seen     bool  // whether last is set
	position int
}

func newPending() *pending { return &pending{items: map[key]*waiting{}} }

// mark makes a path due at an instant, or moves it there.
func (p *pending) mark(k key, at time.Time) {
	w, ok := p.items[k]
	if !ok {
		w = &waiting{key: k, at: at}
		p.items[k] = w
		heap.Push(&p.heap, w)
		return
	}
	w.at, w.seen = at, false
	heap.Fix(&p.heap, w.position)
}

// due takes the paths whose instant has come, at most n of them.
func (p *pending) due(now time.Time, n int) []*waiting {
	var out []*waiting
	for len(p.heap) > 0 && !p.heap[0].at.After(now) && len(out) < n {
		w := heap.Pop(&p.heap).(*waiting)
		delete(p.items, w.key)
		out = append(out, w)
	}
	return out
}

// again puts a path back that has to be looked at once more. A mark that came meanwhile wins.
func (p *pending) again(w *waiting, at time.Time) {
	if _, marked := p.items[w.key]; marked {
		return
	}
	w.at = at
	p.items[w.key] = w
	heap.Push(&p.heap, w)
}

// next is when the first path is due; zero when none waits.
func (p *pending) next() time.Time {
	if len(p.heap) == 0 {
		return time.Time{}
	}
	return p.heap[0].at
}

// of counts the paths of a job.
func (p *pending) of(job string) int {
	n := 0
	for k := range p.items {
		if k.job == job {
			n++
		}
	}
	return n
}

// drop forgets the paths of jobs that are gone.
func (p *pending) drop(keep func(job string) bool) {
	for k, w := range p.items {
		if !keep(k.job) {
			delete(p.items, k)
			heap.Remove(&p.heap, w.position)
		}
	}
}

type deadlines []*waiting

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].position, d[j].position = i, j
}

// Push implements heap.Interface.
func (d *deadlines) Push(x any) {
	w := x.(*waiting)
	w.position = len(*d)
	*d = append(*d, w)
}

// Pop implements heap.Interface.
func (d *deadlines) Pop() any {
	old := *d
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*d = old[:len(old)-1]
	return w
}
