package web

import (
	"context"
	"net/http"
	"time"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
)

// Pauses starts and ends pauses. Times are texts as a person writes them, read in the configuration's
// time zone.
type Pauses interface {
	Pause(ctx context.Context, request api.PauseRequest) (api.Paused, error)
	Resume(ctx context.Context, scope, name string) (api.Resumed, error)
}

func (s *server) pauseRoutes() []Route {
	return []Route{
		get[[]api.Pause]("/v1/pauses", "The pauses that are on.", s.answer(s.pauses)),
		post[api.PauseRequest, api.Paused]("/v1/pauses", "Has nothing started until then: of a job, an agent, or of all.", s.answer(s.pause)),
		post[api.PauseEnd, api.Resumed]("/v1/pauses/end", "Ends a pause.", s.answer(s.resume)),
	}
}

func (s *server) pauses(r *http.Request) (any, error) {
	return s.listPauses(r.Context())
}

func (s *server) listPauses(ctx context.Context) ([]api.Pause, error) {
	all, err := s.ledger.Pauses(ctx, time.Now())
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
	return s.backend.Pauses.Pause(r.Context(), in)
}

func (s *server) resume(r *http.Request) (any, error) {
	var in api.PauseEnd
	if err := read(r, &in); err != nil {
		return nil, err
	}
	if err := pauseScope(in.Scope, in.Name); err != nil {
		return nil, err
	}

	return s.backend.Pauses.Resume(r.Context(), in.Scope, in.Name)
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
