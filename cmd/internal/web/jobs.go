package web

import (
	"context"
	"net/http"

	"rouse/cmd/internal/api"
)

// Jobs answers what is configured, and what comes next.
type Jobs interface {
	Jobs(ctx context.Context) ([]api.Job, error)
	Agents(ctx context.Context) ([]api.Agent, error)
	// Next lists the next n occurrences of a job, or of every job when it is "".
	Next(ctx context.Context, job string, n int) ([]api.Occurrence, error)
	// Known refuses a name that neither the configuration nor history can mean, naming the nearest.
	Known(job, agent string) error
	// Backfill queues the past instants of a job that did not run, or says which it would.
	Backfill(ctx context.Context, job string, request api.BackfillRequest) (api.Backfill, error)
	// Budget says what models cost today.
	Budget(ctx context.Context) (api.Budget, error)
	// Cost foresees what the coming week costs, of a job or of all ("").
	Cost(ctx context.Context, job string) (api.Cost, error)
}

func (s *server) jobRoutes() []Route {
	number := Param{Name: "n", Kind: ParamCount, Says: "how many of each job"}
	return []Route{
		get[[]api.Job]("/v1/jobs", "The jobs, with what starts them and their last and next runs.", s.answer(s.jobs)),
		get[[]api.Agent]("/v1/agents", "The agents.", s.answer(s.agents)),
		get[[]api.Occurrence]("/v1/next", "What comes when.", s.answer(s.next), number, Param{Name: "job", Kind: ParamText, Says: "of one job"}),
		post[api.BackfillRequest, api.Backfill]("/v1/jobs/{name}/backfill", "Queues the runs of the past instants of a job that did not run, or says which it would.", s.answer(s.backfill)),
		get[api.Cost]("/v1/cost", "What the runs of the coming week will cost, by those of the past.", s.answer(s.cost), Param{Name: "job", Kind: ParamText, Says: "of one job"}),
		get[api.Budget]("/v1/budget", "What models have cost today, what is left, and what is to come.", s.answer(s.budget)),
		get[api.Why]("/v1/why", "Why a job ran, or did not, at each of its instants.", s.answer(s.why), number,
			Param{Name: "job", Kind: ParamText, Says: "which; it is needed"}, Param{Name: "at", Kind: ParamText, Says: "around which time, as a person writes it; now where it is left out"}),
		get[[]api.WhyFile]("/v1/why/file", "What the jobs that watch its folder make of a file, or of each file in a folder.", s.answer(s.whyFile),
			Param{Name: "path", Kind: ParamText, Says: "its whole path; it is needed"}),
	}
}

func (s *server) jobs(r *http.Request) (any, error) { return s.backend.Jobs.Jobs(r.Context()) }

func (s *server) agents(r *http.Request) (any, error) { return s.backend.Jobs.Agents(r.Context()) }

func (s *server) next(r *http.Request) (any, error) {
	n, err := count(r, "n", 5, maxRuns)
	if err != nil {
		return nil, err
	}

	job := r.URL.Query().Get("job")
	if err := s.backend.Jobs.Known(job, ""); err != nil {
		return nil, err
	}
	return s.backend.Jobs.Next(r.Context(), job, n)
}

func (s *server) cost(r *http.Request) (any, error) {
	job := r.URL.Query().Get("job")
	if err := s.backend.Jobs.Known(job, ""); err != nil {
		return nil, err
	}
	return s.backend.Jobs.Cost(r.Context(), job)
}

func (s *server) budget(r *http.Request) (any, error) { return s.backend.Jobs.Budget(r.Context()) }

func (s *server) backfill(r *http.Request) (any, error) {
	var in api.BackfillRequest
	if err := read(r, &in); err != nil {
		return nil, err
	}
	return s.backend.Jobs.Backfill(r.Context(), r.PathValue("name"), in)
}
