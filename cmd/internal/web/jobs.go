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
	"rouse/cmd/internal/control"
	"rouse/cmd/internal/why"
	"rouse/internal/ledger"
	"rouse/internal/ledger/incident"
	"rouse/internal/ledger/pause"
)

// jobs handles requests about jobs and agents.
type jobs struct {
	*responder
	catalog   *control.Catalog
	actions   *control.Runs
	costs     *control.Costs
	explainer *why.Explainer
}

func (s *jobs) routes() []Route {
	number := Param{Name: "n", Kind: ParamCount, Most: maxRuns, Description: "how many of each job"}
	return []Route{
		get[[]api.Job]("/v1/jobs", "The jobs, with what starts them and their last and next runs.", s.answer(asked(s.catalog.Jobs))),
		get[[]api.Agent]("/v1/agents", "The agents.", s.answer(asked(s.catalog.Agents))),
		get[[]api.Occurrence]("/v1/next", "What comes when.", s.answer(s.next), number, Param{Name: "job", Kind: ParamText, Description: "of one job"}),
		post[api.BackfillRequest, api.Backfill]("/v1/jobs/{name}/backfill", "Queues the runs of the past instants of a job that did not run, or says which it would.", s.answer(withBody(s.backfill))),
		get[api.Cost]("/v1/cost", "What the runs of the coming week will cost, by those of the past.", s.answer(s.cost), Param{Name: "job", Kind: ParamText, Description: "of one job"}),
		get[api.Budget]("/v1/budget", "What models have cost today, what is left, and what is to come.", s.answer(asked(s.costs.Budget))),
		get[api.Why]("/v1/why", "Why a job ran, or did not, at each of its instants.", s.answer(s.why), number,
			Param{Name: "job", Kind: ParamText, Description: "which; it is needed"}, Param{Name: "at", Kind: ParamText, Description: "around which time, as a person writes it; now where it is left out"}),
		get[[]api.WhyFile]("/v1/why/file", "What the jobs that watch its folder make of a file, or of each file in a folder.", s.answer(s.whyFile),
			Param{Name: "path", Kind: ParamText, Description: "its whole path; it is needed"}),
	}
}

func (s *jobs) next(r *http.Request) (any, error) {
	job := r.URL.Query().Get("job")
	if err := s.catalog.Known(job, ""); err != nil {
		return nil, err
	}
	return s.explainer.Next(r.Context(), job, int(number(r, "n", 5)))
}

func (s *jobs) cost(r *http.Request) (any, error) {
	job := r.URL.Query().Get("job")
	if err := s.catalog.Known(job, ""); err != nil {
		return nil, err
	}
	return s.costs.Cost(r.Context(), job)
}

func (s *jobs) backfill(r *http.Request, in api.BackfillRequest) (any, error) {
	return s.actions.Backfill(r.Context(), r.PathValue("name"), in)
}

func (s *jobs) why(r *http.Request) (any, error) {
	q := r.URL.Query()
	if q.Get("job") == "" {
		return nil, usage("name the job")
	}
	return s.explainer.Why(r.Context(), q.Get("job"), q.Get("at"), int(number(r, "n", defaultRuns)))
}

func (s *jobs) whyFile(r *http.Request) (any, error) {
	path := r.URL.Query().Get("path")
	if !filepath.IsAbs(path) {
		return nil, usage("name the file by its whole path")
	}
	return s.explainer.WhyFile(r.Context(), path)
}

// wakes handles requests about the wakes that agents plan.
type wakes struct {
	*responder
	schedule *control.Schedule
}

func (s *wakes) routes() []Route {
	return []Route{
		get[[]api.AgentWake]("/v1/slots", "The wakes that agents have planned, and may plan.", s.answer(func(r *http.Request) (any, error) {
			return s.schedule.Wakes(r.Context(), r.URL.Query().Get("agent"))
		}), Param{Name: "agent", Kind: ParamText, Description: "of one agent"}),
		post[api.WakeRequest, api.PlannedWake]("/v1/slots", "Plans an agent's next wake.", s.answer(withBody(s.setWake))),
		post[api.AgentName, api.CancelledWake]("/v1/slots/clear", "Cancels an agent's next wake.", s.answer(withBody(s.cancelWake))),
	}
}

func (s *wakes) setWake(r *http.Request, in api.WakeRequest) (any, error) {
	switch {
	case in.Agent == "":
		return nil, usage("name the agent")
	case in.At != "" && in.In != "":
		return nil, usage("give a time or a length of time, not both")
	}
	return s.schedule.SetWake(r.Context(), in)
}

func (s *wakes) cancelWake(r *http.Request, in api.AgentName) (any, error) {
	if in.Agent == "" {
		return nil, usage("name the agent")
	}
	return s.schedule.CancelWake(r.Context(), in.Agent)
}

// Pauses lists, begins and ends pauses.
type Pauses struct {
	*responder
	ledger   *ledger.Ledger
	schedule *control.Schedule
}

func (s *Pauses) routes() []Route {
	return []Route{
		get[[]api.Pause]("/v1/pauses", "The pauses that are on.", s.answer(asked(s.List))),
		post[api.PauseRequest, api.Paused]("/v1/pauses", "Has nothing started until then: of a job, an agent, or of all.", s.answer(withBody(func(r *http.Request, in api.PauseRequest) (any, error) {
			return s.Begin(r.Context(), in)
		}))),
		post[api.PauseEnd, api.Resumed]("/v1/pauses/end", "Ends a pause.", s.answer(withBody(func(r *http.Request, in api.PauseEnd) (any, error) {
			return s.End(r.Context(), in.Scope, in.Name)
		}))),
	}
}

// List returns the current and future pauses.
func (s *Pauses) List(ctx context.Context) ([]api.Pause, error) {
	all, err := s.ledger.Pauses.List(ctx, time.Now())
	return convert(all, api.NewPause), err
}

// Begin begins a pause.
func (s *Pauses) Begin(ctx context.Context, in api.PauseRequest) (api.Paused, error) {
	if err := pauseScope(in.Scope, in.Name); err != nil {
		return api.Paused{}, err
	}
	return s.schedule.Pause(ctx, in)
}

// End ends a pause.
func (s *Pauses) End(ctx context.Context, scope, name string) (api.Resumed, error) {
	if err := pauseScope(scope, name); err != nil {
		return api.Resumed{}, err
	}
	return s.schedule.Resume(ctx, scope, name)
}

// pauseScope returns an error if a scope and a name do not fit together.
func pauseScope(scope, name string) error {
	switch {
	case scope != pause.Job && scope != pause.Agent && scope != pause.All:
		return usage("scope must be job, agent or all, not %q", scope)
	case scope == pause.All && name != "":
		return usage("scope all has no name, and %q was given", name)
	case scope != pause.All && name == "":
		return usage("name the %s", scope)
	}
	return nil
}

// Incidents lists and acknowledges incidents.
type Incidents struct {
	*responder
	ledger *ledger.Ledger
}

func (s *Incidents) routes() []Route {
	return []Route{
		get[[]api.Incident]("/v1/incidents", "Jobs that fail, by the kind of error: those that are open, the oldest first.", s.answer(s.list),
			Param{Name: "job", Kind: ParamText, Description: "those of this job"},
			Param{Name: "all", Kind: ParamFlag, Description: "those that are over, too, the newest first"},
			Param{Name: "n", Kind: ParamCount, Most: maxRuns, Description: "how many at most"}),
		post[api.Acknowledgement, api.Incident]("/v1/incidents/{id}/acknowledge", "Says that somebody knows of an incident: nobody is told of further failures of it.", s.answer(withIDBody("an incident", "rouse incidents", func(ctx context.Context, n int64, in api.Acknowledgement) (api.Incident, error) {
			return s.Acknowledge(ctx, n, in.Note)
		}))),
	}
}

const (
	defaultIncidents = 100
	maxNote          = 500 // characters in a note
)

func (s *Incidents) list(r *http.Request) (any, error) {
	return s.List(r.Context(), incident.Filter{Job: r.URL.Query().Get("job"), Closed: flag(r, "all"), Limit: int(number(r, "n", defaultIncidents))})
}

// List returns incidents: failing jobs, by kind of error.
func (s *Incidents) List(ctx context.Context, f incident.Filter) ([]api.Incident, error) {
	all, err := s.ledger.Incidents.List(ctx, f)
	return convert(all, api.NewIncident), err
}

// Acknowledge records that a person knows of an incident.
func (s *Incidents) Acknowledge(ctx context.Context, n int64, note string) (api.Incident, error) {
	note = strings.TrimSpace(note)
	if utf8.RuneCountInString(note) > maxNote {
		return api.Incident{}, usage("the note has more than %d characters", maxNote)
	}

	i, err := s.ledger.Incidents.Acknowledge(ctx, n, note)
	if over, ok := errors.AsType[*incident.OverError](err); ok {
		return api.Incident{}, conflict("%v", over)
	}
	return api.NewIncident(i), err
}
