package scheduler

// heapItem is an entry with its next instant, in Unix milliseconds. The instant is kept beside
// the pointer, so that comparing two items does not load the entries.
type heapItem struct {
	at    int64
	entry *entry
}

// dueHeap is a heap with four children to a node: half as deep as one with two, and the
// children are adjacent in memory. Each entry knows its index.
type dueHeap []heapItem

const fanOut = 4

func (h *dueHeap) push(x heapItem) {
	*h = append(*h, x)
	h.up(len(*h)-1, x)
}

// remove removes the item at an index.
func (h *dueHeap) remove(i int) {
	old := *h
	old[i].entry.index = -1
	end := len(old) - 1
	last := old[end]
	old[end] = heapItem{} // so that the entry can be collected
	*h = old[:end]
	if i < end {
		h.fix(i, last)
	}
}

// fix stores x, starting at the free index i and moving up or down to where it belongs.
func (h dueHeap) fix(i int, x heapItem) {
	if i > 0 && x.at < h[(i-1)/fanOut].at {
		h.up(i, x)
	} else {
		h.down(i, x)
	}
}

func (h dueHeap) set(i int, x heapItem) {
	h[i] = x
	x.entry.index = int32(i)
}

func (h dueHeap) up(i int, x heapItem) {
	for i > 0 {
		parent := (i - 1) / fanOut
		if h[parent].at <= x.at {
			break
		}
		h.set(i, h[parent])
		i = parent
	}
	h.set(i, x)
}

func (h dueHeap) down(i int, x heapItem) {
	for {
		first := fanOut*i + 1
		if first >= len(h) {
			break
		}

		least := first
		for c := first + 1; c < min(first+fanOut, len(h)); c++ {
			if h[c].at < h[least].at {
				least = c
			}
		}
		if h[least].at >= x.at {
			break
		}

		h.set(i, h[least])
		i = least
	}
	h.set(i, x)
}
