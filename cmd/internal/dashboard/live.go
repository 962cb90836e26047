package dashboard

import (
	"io"
	"net/http"
	"time"
)

// betweenSignals is the least time between two signals: a page is made again for each.
const betweenSignals = 500 * time.Millisecond

// live signals that something has happened, to a page that is looked at. What it was, the page itself says: it
// is fetched again.
func (s *site) live(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	flush := http.NewResponseController(w)
	// One at the beginning: since the page was made something may have happened.
	for {
		changed := s.ledger.Changed()
		if _, err := io.WriteString(w, "data: changed\n\n"); err != nil {
			return
		}
		if err := flush.Flush(); err != nil {
			return
		}

		select {
		case <-time.After(betweenSignals):
		case <-s.backend.Stopping:
			return
		case <-r.Context().Done():
			return
		}
		select {
		case <-changed:
		case <-s.backend.Stopping:
			return
		case <-r.Context().Done():
			return
		}
	}
}
