package web

import (
	"net/http"
	"path/filepath"
)

func (s *Server) whyFile(r *http.Request) (any, error) {
	path := r.URL.Query().Get("path")
	if !filepath.IsAbs(path) {
		return nil, usage("name the file by its whole path")
	}
	return s.backend.WhyFile(r.Context(), path)
}

func (s *Server) why(r *http.Request) (any, error) {
	n, err := count(r, "n", defaultRuns, maxRuns)
	if err != nil {
		return nil, err
	}

	q := r.URL.Query()
	if q.Get("job") == "" {
		return nil, usage("name the job")
	}
	return s.backend.Why(r.Context(), q.Get("job"), q.Get("at"), n)
}
