package web

import (
	"context"
	"net/http"
	"path/filepath"

	"rouse/cmd/internal/api"
)

// Explainer explains why a job ran, or did not.
type Explainer interface {
	// Why explains the instants of a job around a time, or up to now when it is "".
	Why(ctx context.Context, job, at string, n int) (api.Why, error)
	// WhyFile says what the jobs that watch its folder make of a file, or of each file in a folder.
	WhyFile(ctx context.Context, path string) ([]api.WhyFile, error)
}

func (s *server) whyFile(r *http.Request) (any, error) {
	path := r.URL.Query().Get("path")
	if !filepath.IsAbs(path) {
		return nil, usage("name the file by its whole path")
	}
	return s.backend.Explainer.WhyFile(r.Context(), path)
}

func (s *server) why(r *http.Request) (any, error) {
	n, err := count(r, "n", defaultRuns, maxRuns)
	if err != nil {
		return nil, err
	}

	q := r.URL.Query()
	if q.Get("job") == "" {
		return nil, usage("name the job")
	}
	return s.backend.Explainer.Why(r.Context(), q.Get("job"), q.Get("at"), n)
}
