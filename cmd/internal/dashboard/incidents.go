package dashboard

import (
	"net/http"
	"slices"

	"github.com/a-h/templ"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
)

const maxIncidents = 100

// incidents are the jobs that fail, or those that did.
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
	if v.All, err = s.answers.Incidents(r.Context(), ledger.IncidentFilter{Closed: v.Over, Limit: maxIncidents}); err != nil {
		return nil, err
	}
	if v.Over {
		v.All = slices.DeleteFunc(v.All, func(i api.Incident) bool { return i.ClosedAt.IsZero() })
	}
	return incidentsPage(v), nil
}

func (s *site) acknowledge(r *http.Request) (string, error) {
	_, err := s.answers.Acknowledge(r.Context(), pathID(r, "id"), r.PostFormValue("note"))
	return back(r), err
}
