package web

import (
	"encoding/json"
	"net/http"
	"strconv"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// eventPage is how many events are read from the ledger at once.
const eventPage = 500

// events streams the record as JSON lines: what there is, and with follow=true what
// comes, until the reader leaves or the one run that was asked for has finished, or waits
// for a person.
func (s *server) events(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	f := ledger.EventFilter{Job: q.Get("job"), Limit: eventPage}
	var err error
	if text := q.Get("run"); text != "" {
		if f.Run, err = runID(text); err == nil {
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
	if err := s.stream(w, r, f, q.Get("follow") == "true"); err != nil && r.Context().Err() == nil {
		s.log.Warn("an event stream broke off", "error", err)
	}
}

func (s *server) stream(w http.ResponseWriter, r *http.Request, f ledger.EventFilter, follow bool) error {
	out := json.NewEncoder(w)
	flush := http.NewResponseController(w)
	for {
		// Both before reading, so that nothing falls between.
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

		if err := flush.Flush(); err != nil {
			return err
		}
		if len(page) == eventPage {
			continue
		}
		if !follow || over {
			return nil
		}

		select {
		case <-changed:
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
