package web

import (
	"context"
	"net/http"
	"time"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
)

// Pauses begin and end pauses. Times are texts as a person writes them: they mean what clocks show
// in the configuration's time zone.
type Pauses interface {
	Pause(ctx context.Context, request api.PauseRequest) (api.Paused, error)
	Resume(ctx context.Context, scope, name string) (api.Resumed, error)
}

func (s *server) pauseRoutes(mux *http.ServeMux) {
	mux.Handle("GET /v1/pauses", s.answer(s.pauses))
	mux.Handle("POST /v1/pauses", s.answer(s.pause))
	mux.Handle("POST /v1/pauses/end", s.answer(s.resume))
}

func (s *server) pauses(r *http.Request) (any, error) {
	now := time.Now()
	all, err := s.ledger.Pauses(r.Context(), now)
	out := []api.Pause{}
	for _, p := range all {
		out = append(out, NewPause(p))
	}
	return out, err
}

func (s *server) pause(r *http.Request) (any, error) {
	var in api.PauseRequest
	if err := read(r, &in); err != nil {
		return nil, err
	}
	if err := pauseScope(in.Scope, in.Name); err != nil {
		return nil, err
	}
	return s.behind.Pauses.Pause(r.Context(), in)
}

func (s *server) resume(r *http.Request) (any, error) {
	var in struct {
		Scope string `json:"scope"`
		Name  string `json:"name"`
	}
	if err := read(r, &in); err != nil {
		return nil, err
	}
	if err := pauseScope(in.Scope, in.Name); err != nil {
		return nil, err
	}

	return s.behind.Pauses.Resume(r.Context(), in.Scope, in.Name)
}

// pauseScope refuses what does not name one thing.
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

// NewPause is a pause of the ledger.
func NewPause(p ledger.Pause) api.Pause {
	return api.Pause{Scope: p.Scope, Name: p.Name, Since: api.At(p.Since), Until: api.At(p.Until), Reason: p.Reason, By: p.By}
}
