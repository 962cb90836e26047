package web

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"unicode/utf8"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
)

func (s *Server) incidentRoutes() []Route {
	return []Route{
		get[[]api.Incident]("/v1/incidents", "Jobs that fail, by the kind of error: those that are open, the oldest first.", s.answer(s.incidents),
			Param{Name: "job", Kind: ParamText, Says: "those of this job"},
			Param{Name: "all", Kind: ParamFlag, Says: "those that are over, too, the newest first"},
			Param{Name: "n", Kind: ParamCount, Most: maxRuns, Says: "how many at most"}),
		post[api.Acknowledgement, api.Incident]("/v1/incidents/{id}/acknowledge", "Says that somebody knows of an incident: nobody is told of further failures of it.", s.answer(withIDBody("an incident", "rouse incidents", func(ctx context.Context, n int64, in api.Acknowledgement) (api.Incident, error) {
			return s.Acknowledge(ctx, n, in.Note)
		}))),
	}
}

const (
	defaultIncidents = 100
	maxNote          = 500 // characters of an acknowledgement
)

func (s *Server) incidents(r *http.Request) (any, error) {
	return s.Incidents(r.Context(), ledger.IncidentFilter{Job: r.URL.Query().Get("job"), Closed: flag(r, "all"), Limit: int(number(r, "n", defaultIncidents))})
}

// Incidents lists jobs that fail, by the kind of error.
func (s *Server) Incidents(ctx context.Context, f ledger.IncidentFilter) ([]api.Incident, error) {
	all, err := s.ledger.Incidents(ctx, f)
	return convert(all, NewIncident), err
}

// Acknowledge says that somebody knows of an incident.
func (s *Server) Acknowledge(ctx context.Context, n int64, note string) (api.Incident, error) {
	note = strings.TrimSpace(note)
	if utf8.RuneCountInString(note) > maxNote {
		return api.Incident{}, usage("the note has more than %d characters", maxNote)
	}

	i, err := s.ledger.Acknowledge(ctx, n, note)
	if over, ok := errors.AsType[*ledger.IncidentOverError](err); ok {
		return api.Incident{}, conflict("%v", over)
	}
	return NewIncident(i), err
}

// NewIncident converts an incident of the ledger.
func NewIncident(i ledger.Incident) api.Incident {
	out := api.Incident{ID: id(i.ID), Job: i.Job, Agent: i.Agent, Kind: i.Kind, Failures: i.Failures, Error: i.Error, FirstRun: id(i.FirstRun), LastRun: id(i.LastRun),
		OpenedAt: api.At(i.OpenedAt), LastAt: api.At(i.LastAt), Told: i.Told, AckedAt: api.At(i.AckedAt), Note: i.Note, ClosedAt: api.At(i.ClosedAt), ClosedBy: optionalID(i.ClosedBy)}
	if i.LastRun == 0 { // an incident without a run: no success in time
		out.FirstRun, out.LastRun = "", ""
	}
	return out
}
