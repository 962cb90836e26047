package watcher

import "sync"

// eventPath is a path for which events have arrived.
type eventPath struct {
	path    string
	created bool // whether it is new in its folder
}

// hints collects the paths that a folder has to check. Other goroutines add them.
type hints struct {
	notified chan struct{} // capacity 1

	mu         sync.Mutex
	eventIndex map[string]int  // indexes of paths in events
	events     []eventPath     // paths since the last pass, each once
	removed    map[string]bool // removed subscribed folders; true if renamed
	scanReason string          // reason of a requested scan; "" if none is requested
}

// noteEvent records the path of an event. It must be fast because the event loop calls it.
func (h *hints) noteEvent(path string, created bool) {
	h.mu.Lock()
	at, again := h.eventIndex[path]
	if !again {
		at = len(h.events)
		h.eventIndex[path] = at
		h.events = append(h.events, eventPath{path: path})
	}

	h.events[at].created = h.events[at].created || created
	h.mu.Unlock()
	h.notify()
}

// noteRemoved records that a subscribed folder was removed. The event loop calls it.
func (h *hints) noteRemoved(dir string, renamed bool) {
	h.mu.Lock()
	h.removed[dir] = h.removed[dir] || renamed
	h.mu.Unlock()
	h.notify()
}

func (h *hints) notify() {
	select {
	case h.notified <- struct{}{}:
	default:
	}
}

// requestScan asks the folder's goroutine for a scan. It keeps the first reason.
func (h *hints) requestScan(why string) {
	h.mu.Lock()
	if h.scanReason == "" {
		h.scanReason = why
	}
	h.mu.Unlock()
	h.notify()
}

// takeScanReason returns the reason of a requested scan and clears it.
func (h *hints) takeScanReason() string {
	h.mu.Lock()
	defer h.mu.Unlock()

	why := h.scanReason
	h.scanReason = ""
	return why
}

// takeRemoved returns the folders that were removed and clears the list. The event loop continues
// with a new map.
func (h *hints) takeRemoved() map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.removed) == 0 {
		return nil
	}

	lost := h.removed
	h.removed = map[string]bool{}
	return lost
}

// takeEvents returns the paths of the events and clears the list.
func (h *hints) takeEvents() []eventPath {
	h.mu.Lock()
	defer h.mu.Unlock()

	all := h.events
	if len(all) > 0 {
		h.eventIndex, h.events = map[string]int{}, nil
	}
	return all
}

// waiting reports whether there are events that the folder has not handled.
func (h *hints) waiting() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.eventIndex) > 0
}
