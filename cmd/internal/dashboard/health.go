package dashboard

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/a-h/templ"

	"rouse/cmd/internal/api"
	"rouse/internal/ledger"
	"rouse/internal/ledger/incident"
	"rouse/internal/ledger/store"
)

const maxUndelivered = 50

// health is the page with the state of the daemon.
type health struct {
	page
	Status      api.Status
	Checks      []api.Check
	Jobs        []api.Job // jobs with a watch
	Channels    []channel
	Undelivered []ledger.Notice
	Incidents   []api.Incident // open incidents
	Ledger      store.FileState
}

// channel is a notification channel and its last notice.
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
	var errs [5]error
	h.Status, errs[0] = s.status.Status(ctx)
	// Contact model servers only on request, because the page is reloaded often.
	h.Checks, errs[1] = s.doctor.Doctor(ctx, r.URL.Query().Get("ask") == "")
	h.Ledger, errs[2] = s.ledger.FileState(ctx)
	h.Undelivered, errs[3] = s.ledger.Outbox.Undelivered(ctx, maxUndelivered)
	h.Incidents, errs[4] = s.answers.Incidents.List(ctx, incident.Filter{Limit: maxIncidents})
	if err := cmp.Or(errs[:]...); err != nil {
		return nil, err
	}

	for _, name := range s.control.Channels() {
		one := channel{Name: name}
		last, ok, err := s.ledger.Outbox.Last(ctx, name)
		if err != nil {
			return nil, err
		}
		if ok {
			one.Last = &last
		}
		h.Channels = append(h.Channels, one)
	}

	// Without a valid configuration there are no jobs. The page shows its problems elsewhere.
	if jobs, err := s.control.Jobs(ctx); err == nil {
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

// reload reloads the configuration. The health page shows any problems.
func (s *site) reload(r *http.Request) (string, error) {
	_, err := s.reloader.Reload(r.Context())
	return "/health", err
}

// tryChannel sends a test notice to a channel.
func (s *site) tryChannel(r *http.Request) (string, error) {
	_, err := s.control.Notify(r.Context(), r.PostFormValue("channel"), "This is a test from the rouse dashboard.")
	return "/health", err
}

// checkMark returns the mark of a doctor check.
func checkMark(c api.Check) mark {
	switch {
	case !c.OK:
		return mark{"▲", "bad", "wrong"}
	case c.NotTried != "":
		return mark{"○", "grey", "not tried"}
	}
	return mark{"●", "good", "good"}
}

const maxIncidents = 100

// incidents is the page of open or closed incidents.
type incidents struct {
	page
	All  []api.Incident
	Over bool
}

func (s *site) incidentRoutes(mux *http.ServeMux) {
	mux.Handle("GET /incidents", s.show(s.incidents))
	mux.Handle("POST /incidents/{id}/acknowledge", s.do(s.acknowledge))
}

func (s *site) incidents(r *http.Request, p page) (templ.Component, error) {
	v := incidents{page: p.titled("Incidents", "Health"), Over: r.URL.Query().Get("over") == "yes"}
	var err error
	if v.All, err = s.answers.Incidents.List(r.Context(), incident.Filter{Closed: v.Over, Limit: maxIncidents}); err != nil {
		return nil, err
	}
	if v.Over {
		v.All = slices.DeleteFunc(v.All, func(i api.Incident) bool { return i.ClosedAt.IsZero() })
	}
	return incidentsPage(v), nil
}

func (s *site) acknowledge(r *http.Request) (string, error) {
	_, err := s.answers.Incidents.Acknowledge(r.Context(), pathID(r, "id"), r.PostFormValue("note"))
	return back(r), err
}
