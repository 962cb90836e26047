package dashboard

import (
	"net/http"

	"github.com/a-h/templ"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
)

const maxUndelivered = 50

// health is what works and what does not.
type health struct {
	page
	Status      api.Status
	Checks      []api.Check
	Jobs        []api.Job // with a watch
	Channels    []channel
	Undelivered []ledger.Notice
	Incidents   []api.Incident // that are open
	Ledger      ledger.FileState
}

// channel is a way to reach people, with what was sent on it last.
type channel struct {
	Name string
	Last *ledger.Notice
}

func (s *site) healthRoutes(mux *http.ServeMux) {
	mux.Handle("GET /health", s.show(s.health))
	mux.Handle("POST /health/reload", s.do(s.reload))
	mux.Handle("POST /health/notice", s.do(s.tryChannel))
}

func (s *site) health(r *http.Request, p page) (templ.Component, error) {
	ctx := r.Context()
	h := health{page: p.titled("Health", "Health")}
	var err error
	if h.Status, err = s.backend.Status(ctx); err != nil {
		return nil, err
	}
	// Servers of models are asked only where somebody says so: a page is looked at often.
	if h.Checks, err = s.backend.Doctor(ctx, r.URL.Query().Get("ask") == ""); err != nil {
		return nil, err
	}
	if h.Ledger, err = s.ledger.FileState(ctx); err != nil {
		return nil, err
	}
	if h.Undelivered, err = s.ledger.UndeliveredNotices(ctx, maxUndelivered); err != nil {
		return nil, err
	}

	if h.Incidents, err = s.answers.Incidents(ctx, ledger.IncidentFilter{Limit: maxIncidents}); err != nil {
		return nil, err
	}

	for _, name := range s.backend.Channels() {
		one := channel{Name: name}
		last, ok, err := s.ledger.LastNotice(ctx, name)
		if err != nil {
			return nil, err
		}
		if ok {
			one.Last = &last
		}
		h.Channels = append(h.Channels, one)
	}

	// What is wrong with the configuration stands above; without a usable one there are no jobs.
	if jobs, err := s.backend.Jobs(ctx); err == nil {
		for _, j := range jobs {
			if j.Watch != nil {
				h.Jobs = append(h.Jobs, j)
			}
		}
	} else {
		h.Status.Problem += s.answers.Failure(r, err).Message
	}
	return healthPage(h), nil
}

// reload reads the configuration again. What is wrong with it is on the page of health.
func (s *site) reload(r *http.Request) (string, error) {
	_, err := s.backend.Reload(r.Context())
	return "/health", err
}

// tryChannel sends a word to a channel.
func (s *site) tryChannel(r *http.Request) (string, error) {
	_, err := s.backend.Notify(r.Context(), r.PostFormValue("channel"), "This is a test from the rouse dashboard.")
	return "/health", err
}

// checkMark is how a check of the doctor came out.
func checkMark(c api.Check) mark {
	switch {
	case !c.OK:
		return mark{"▲", "bad", "wrong"}
	case c.NotTried != "":
		return mark{"○", "grey", "not tried"}
	}
	return mark{"●", "good", "good"}
}
