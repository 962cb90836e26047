package web

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// eventPage is how many events are read from the ledger at once.
const eventPage = 500

// events streams the record as JSON lines: what there is and, with follow=true, what is added,
// until the client disconnects or the one run that was asked for has finished or waits for a person. A
// stream that ends because the server stops breaks off, so that nobody takes its end for that of a run.
func (s *server) events(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	f := ledger.EventFilter{Job: q.Get("job"), Limit: eventPage}
	var err error
	if text := q.Get("run"); text != "" {
		if f.Run, err = runID(text); err == nil {
			// To follow a run that does not exist would wait for ever.
			_, err = s.ledger.Run(r.Context(), f.Run)
		}
	}

	if text := q.Get("after"); err == nil && text != "" {
		if f.After, err = strconv.ParseInt(text, 10, 64); err != nil {
			err = usage("after must be the id of an event, not %q", text)
		}
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}

	w.Header().Set("Content-Type", "application/x-ndjson")
	err = s.stream(w, r, f, q.Get("follow") == "true")
	if errors.Is(err, errStopping) {
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http recovers it: its only way to break an answer off
	}
	if err != nil && r.Context().Err() == nil {
		s.log.Warn("an event stream broke off", "error", err)
	}
}

// errStopping ends a stream that somebody follows when the server stops.
var errStopping = errors.New("the server stops")

func (s *server) stream(w http.ResponseWriter, r *http.Request, f ledger.EventFilter, follow bool) error {
	out := json.NewEncoder(w)
	flush := http.NewResponseController(w)
	stopping := false
	for {
		// Both before reading, so that an event between reading and waiting is not missed: it
		// closes changed, and a run that ends after the check is read in the next round.
		changed := s.ledger.Changed()
		over := f.Run != 0 && s.finished(r, f.Run)
		page, err := s.ledger.Events(r.Context(), f)
		if err != nil {
			return err
		}

		for _, e := range page {
			if err := out.Encode(newEvent(e)); err != nil {
				return err
			}
			f.After = e.ID
		}

		// A follower wants each event now, not when a buffer is full.
		if err := flush.Flush(); err != nil {
			return err
		}
		// A full page: there may be more already, so do not wait.
		if len(page) == eventPage {
			continue
		}
		if !follow || over {
			return nil
		}
		if stopping {
			return errStopping
		}

		select {
		case <-changed:
		case <-s.backend.Stopping:
			stopping = true // once more, for what was written last
		case <-r.Context().Done():
			return nil
		}
	}
}

// finished says whether a run is over for now; its record may hold the finish of an
// earlier attempt.
func (s *server) finished(r *http.Request, id int64) bool {
	run, err := s.ledger.Run(r.Context(), id)
	return err == nil && (run.State == domain.StateFinished || run.WaitsForPerson())
}
