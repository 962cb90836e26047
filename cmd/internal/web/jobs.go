package web

import (
	"context"
	"net/http"

	"rouse/cmd/internal/api"
)

// Jobs answers what is configured, and what comes next.
type Jobs interface {
	Jobs(ctx context.Context) ([]api.Job, error)
	// Next lists the next n occurrences of a job, or of every job when it is "".
	Next(ctx context.Context, job string, n int) ([]api.Occurrence, error)
	// Known refuses a name that neither the configuration nor history can mean, naming the nearest.
	Known(job, agent string) error
	// Budget says what models cost today.
	Budget(ctx context.Context) (api.Budget, error)
}

func (s *server) jobRoutes(mux *http.ServeMux) {
	mux.Handle("GET /v1/jobs", s.answer(s.jobs))
	mux.Handle("GET /v1/next", s.answer(s.next))
	mux.Handle("GET /v1/budget", s.answer(s.budget))
	mux.Handle("GET /v1/why", s.answer(s.why))
}

func (s *server) jobs(r *http.Request) (any, error) { return s.backend.Jobs.Jobs(r.Context()) }

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

func (s *server) budget(r *http.Request) (any, error) { return s.backend.Jobs.Budget(r.Context()) }
