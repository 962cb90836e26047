package web

import (
	"context"
	"net/http"
	"time"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
)

func (s *Server) pauseRoutes() []Route {
	return []Route{
		get[[]api.Pause]("/v1/pauses", "The pauses that are on.", s.answer(asked(s.Pauses))),
		post[api.PauseRequest, api.Paused]("/v1/pauses", "Has nothing started until then: of a job, an agent, or of all.", s.answer(withBody(s.pause))),
		post[api.PauseEnd, api.Resumed]("/v1/pauses/end", "Ends a pause.", s.answer(withBody(s.resume))),
	}
}

// Pauses lists the pauses that are on, or will be.
func (s *Server) Pauses(ctx context.Context) ([]api.Pause, error) {
	all, err := s.ledger.Pauses(ctx, time.Now())
	out := []api.Pause{}
	for _, p := range all {
		out = append(out, NewPause(p))
	}
	return out, err
}

func (s *Server) pause(r *http.Request, in api.PauseRequest) (any, error) {
	return s.Pause(r.Context(), in)
}

func (s *Server) resume(r *http.Request, in api.PauseEnd) (any, error) {
	return s.Resume(r.Context(), in.Scope, in.Name)
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

// NewPause converts a pause of the ledger.
func NewPause(p ledger.Pause) api.Pause {
	return api.Pause{Scope: p.Scope, Name: p.Name, Since: api.At(p.Since), Until: api.At(p.Until), Reason: p.Reason, By: p.By}
}
