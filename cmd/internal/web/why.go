package web

import (
	"context"
	"net/http"

	"rouse/cmd/internal/api"
)

// Explainer explains why a job ran, or did not.
type Explainer interface {
	// Why explains the instants of a job around a time, or up to now when it is "".
	Why(ctx context.Context, job, at string, n int) (api.Why, error)
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
