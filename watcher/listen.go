package watcher

import "github.com/fsnotify/fsnotify"

// listen takes events as fast as they come and only notes their paths.
func (w *Watcher) listen() {
	if w.arms.events == nil {
		return
	}
	for {
		select {
		case e, ok := <-w.arms.events.Events:
			if !ok {
				return
			}
			if e.Name == "" {
				continue
			}

			around, itself := w.arms.heard(e.Name)
			for _, f := range around {
				f.hear(e.Name, e.Has(fsnotify.Create))
			}

			if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
				for _, f := range itself {
					f.lose(e.Name, e.Has(fsnotify.Rename))
				}
			}
		case err, ok := <-w.arms.events.Errors:
			if !ok {
				return
			}
			w.lost(err)
		}
	}
}

// lost deals with events that the system could not deliver: everything is looked at.
func (w *Watcher) lost(err error) {
	w.log.Warn("file events were lost; every watched folder is scanned", "error", err)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.folders {
		f.askScan("events were lost: " + err.Error())
	}
}
