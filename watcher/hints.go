package watcher

import "sync"

// eventPath is a path that events named.
type eventPath struct {
	path    string
	created bool // it is new in its folder
}

// hints are what other goroutines tell that of a folder: where to look.
type hints struct {
	notified chan struct{} // capacity 1

	mu         sync.Mutex
	eventIndex map[string]int  // where a path is in events
	events     []eventPath     // since the last pass, each path once
	removed    map[string]bool // subscribed folders that went away: whether they were renamed
	scanReason string          // why a scan was requested, "" when none was
}

// noteEvent notes the path of an event. The event loop calls it, which must stay quick.
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

// noteRemoved notes that a subscribed folder went away. The event loop calls it.
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

// requestScan asks the folder's goroutine for a scan; the first reason is kept.
func (h *hints) requestScan(why string) {
	h.mu.Lock()
	if h.scanReason == "" {
		h.scanReason = why
	}
	h.mu.Unlock()
	h.notify()
}

// takeScanReason returns why a scan was requested, once.
func (h *hints) takeScanReason() string {
	h.mu.Lock()
	defer h.mu.Unlock()

	why := h.scanReason
	h.scanReason = ""
	return why
}

// takeRemoved returns the folders that went away, once: the event loop goes on with another map.
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

// takeEvents returns the paths that events named, once.
func (h *hints) takeEvents() []eventPath {
	h.mu.Lock()
	defer h.mu.Unlock()

	all := h.events
	if len(all) > 0 {
		h.eventIndex, h.events = map[string]int{}, nil
	}
	return all
}

// waiting says whether events came that the folder has not looked at.
func (h *hints) waiting() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.eventIndex) > 0
}
