package watcher

import "github.com/fsnotify/fsnotify"

// readEvents reads events as fast as they arrive and only records their paths. If it did more, the
// kernel's queue would overflow.
func (w *Watcher) readEvents() {
	for events := range w.subs.opened {
		w.readEventsOf(events)
	}
}

func (w *Watcher) readEventsOf(events *fsnotify.Watcher) {
	for {
		select {
		case e, ok := <-events.Events:
			if !ok {
				return
			}
			if e.Name == "" {
				continue
			}

			around, itself := w.subs.subscribers(e.Name)
			for _, f := range around {
				f.hints.noteEvent(e.Name, e.Has(fsnotify.Create))
			}

			if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
				for _, f := range itself {
					f.hints.noteRemoved(e.Name, e.Has(fsnotify.Rename))
				}
			}
		case err, ok := <-events.Errors:
			if !ok {
				return
			}
			w.rescanAll(err)
		}
	}
}

// rescanAll requests a scan of every folder after the system has lost events.
func (w *Watcher) rescanAll(err error) {
	w.log.Warn("file events were lost; every watched folder is scanned", "error", err)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.folders {
		f.hints.requestScan("events were lost: " + err.Error())
	}
}
