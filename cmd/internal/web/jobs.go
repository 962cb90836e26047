package web

import (
	"net/http"

	"rouse/cmd/internal/api"
)

func (s *Server) jobRoutes() []Route {
	number := Param{Name: "n", Kind: ParamCount, Says: "how many of each job"}
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
	n, err := count(r, "n", 5, maxRuns)
	if err != nil {
		return nil, err
	}

	job := r.URL.Query().Get("job")
	if err := s.backend.Known(job, ""); err != nil {
		return nil, err
	}
	return s.backend.Next(r.Context(), job, n)
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
