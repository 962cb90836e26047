package web

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"rouse/cmd/internal/api"
	"rouse/internal/ledger"
)

func (s *Server) jobRoutes() []Route {
	number := Param{Name: "n", Kind: ParamCount, Most: maxRuns, Says: "how many of each job"}
	return []Route{
		get[[]api.Job]("/v1/jobs", "The jobs, with what starts them and their last and next runs.", s.answer(asked(s.backend.Jobs))),
		get[[]api.Agent]("/v1/agents", "The agents.", s.answer(asked(s.backend.Agents))),
		get[[]api.Occurrence]("/v1/next", "What comes when.", s.answer(s.next), number, Param{Name: "job", Kind: ParamText, Says: "of one job"}),
		post[api.BackfillRequest, api.Backfill]("/v1/jobs/{name}/backfill", "Queues the runs of the past instants of a job that did not run, or says which it would.", s.answer(withBody(s.backfill))),
		get[api.Cost]("/v1/cost", "What the runs of the coming week will cost, by those of the past.", s.answer(s.cost), Param{Name: "job", Kind: ParamText, Says: "of one job"}),
		get[api.Budget]("/v1/budget", "What models have cost today, what is left, and what is to come.", s.answer(asked(s.backend.Budget))),
		get[api.Why]("/v1/why", "Why a job ran, or did not, at each of its instants.", s.answer(s.why), number,
			Param{Name: "job", Kind: ParamText, Says: "which; it is needed"}, Param{Name: "at", Kind: ParamText, Says: "around which time, as a person writes it; now where it is left out"}),
		get[[]api.WhyFile]("/v1/why/file", "What the jobs that watch its folder make of a file, or of each file in a folder.", s.answer(s.whyFile),
			Param{Name: "path", Kind: ParamText, Says: "its whole path; it is needed"}),
	}
}

func (s *Server) next(r *http.Request) (any, error) {
	job := r.URL.Query().Get("job")
	if err := s.backend.Known(job, ""); err != nil {
		return nil, err
	}
	return s.backend.Next(r.Context(), job, int(number(r, "n", 5)))
}

func (s *Server) cost(r *http.Request) (any, error) {
	job := r.URL.Query().Get("job")
	if err := s.backend.Known(job, ""); err != nil {
		return nil, err
	}
	return s.backend.Cost(r.Context(), job)
}

func (s *Server) backfill(r *http.Request, in api.BackfillRequest) (any, error) {
	return s.backend.Backfill(r.Context(), r.PathValue("name"), in)
}

func (s *Server) why(r *http.Request) (any, error) {
	q := r.URL.Query()
	if q.Get("job") == "" {
		return nil, usage("name the job")
	}
	return s.backend.Why(r.Context(), q.Get("job"), q.Get("at"), int(number(r, "n", defaultRuns)))
}

func (s *Server) whyFile(r *http.Request) (any, error) {
	path := r.URL.Query().Get("path")
	if !filepath.IsAbs(path) {
		return nil, usage("name the file by its whole path")
	}
	return s.backend.WhyFile(r.Context(), path)
}

func (s *Server) wakeRoutes() []Route {
	return []Route{
		get[[]api.AgentWake]("/v1/slots", "The wakes that agents have planned, and may plan.", s.answer(func(r *http.Request) (any, error) {
			return s.backend.Wakes(r.Context(), r.URL.Query().Get("agent"))
		}), Param{Name: "agent", Kind: ParamText, Says: "of one agent"}),
		post[api.WakeRequest, api.PlannedWake]("/v1/slots", "Plans an agent's next wake.", s.answer(withBody(s.setWake))),
		post[api.AgentName, api.CancelledWake]("/v1/slots/clear", "Cancels an agent's next wake.", s.answer(withBody(s.cancelWake))),
	}
}

func (s *Server) setWake(r *http.Request, in api.WakeRequest) (any, error) {
	switch {
	case in.Agent == "":
		return nil, usage("name the agent")
	case in.At != "" && in.In != "":
		return nil, usage("give a time or a length of time, not both")
	}
	return s.backend.SetWake(r.Context(), in)
}

func (s *Server) cancelWake(r *http.Request, in api.AgentName) (any, error) {
	if in.Agent == "" {
		return nil, usage("name the agent")
	}
	return s.backend.CancelWake(r.Context(), in.Agent)
}

func (s *Server) pauseRoutes() []Route {
	return []Route{
		get[[]api.Pause]("/v1/pauses", "The pauses that are on.", s.answer(asked(s.Pauses))),
		post[api.PauseRequest, api.Paused]("/v1/pauses", "Has nothing started until then: of a job, an agent, or of all.", s.answer(withBody(func(r *http.Request, in api.PauseRequest) (any, error) {
			return s.Pause(r.Context(), in)
		}))),
		post[api.PauseEnd, api.Resumed]("/v1/pauses/end", "Ends a pause.", s.answer(withBody(func(r *http.Request, in api.PauseEnd) (any, error) {
			return s.Resume(r.Context(), in.Scope, in.Name)
		}))),
	}
}

// Pauses lists the current and future pauses.
func (s *Server) Pauses(ctx context.Context) ([]api.Pause, error) {
	all, err := s.ledger.Pauses(ctx, time.Now())
	return convert(all, api.NewPause), err
}

// Pause begins a pause.
func (s *Server) Pause(ctx context.Context, in api.PauseRequest) (api.Paused, error) {
	if err := pauseScope(in.Scope, in.Name); err != nil {
		return api.Paused{}, err
	}
	return s.backend.Pause(ctx, in)
}

// Resume ends a pause.
func (s *Server) Resume(ctx context.Context, scope, name string) (api.Resumed, error) {
	if err := pauseScope(scope, name); err != nil {
		return api.Resumed{}, err
	}
	return s.backend.Resume(ctx, scope, name)
}

// pauseScope refuses a scope and a name that do not go together.
func pauseScope(scope, name string) error {
	switch {
	case scope != ledger.PauseJob && scope != ledger.PauseAgent && scope != ledger.PauseAll:
		return usage("scope must be job, agent or all, not %q", scope)
	case scope == ledger.PauseAll && name != "":
		return usage("scope all has no name, and %q was given", name)
	case scope != ledger.PauseAll && name == "":
		return usage("name the %s", scope)
	}
	return nil
}

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
	return convert(all, api.NewIncident), err
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
	return api.NewIncident(i), err
}
