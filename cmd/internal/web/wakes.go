package web

import (
	"context"
	"net/http"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
)

// Wakes lists, plans and cancels the wakes of agents.
type Wakes interface {
	// Wakes lists the agents that plan, or one of them, with their wakes and limits.
	Wakes(ctx context.Context, agent string) ([]api.AgentWake, error)
	// SetWake plans an agent's next wake for its owner. What is left out stays as it was planned.
	SetWake(ctx context.Context, request api.WakeRequest) (api.PlannedWake, error)
	CancelWake(ctx context.Context, agent string) (api.CancelledWake, error)
}

func (s *server) wakeRoutes() []Route {
	return []Route{
		get[[]api.AgentWake]("/v1/slots", "The wakes that agents have planned, and may plan.", s.answer(s.wakes), Param{Name: "agent", Kind: ParamText, Says: "of one agent"}),
		post[api.WakeRequest, api.PlannedWake]("/v1/slots", "Plans an agent's next wake.", s.answer(s.setWake)),
		post[api.AgentName, api.CancelledWake]("/v1/slots/clear", "Cancels an agent's next wake.", s.answer(s.cancelWake)),
	}
}

// NewWake converts a slot of the ledger.
func NewWake(s ledger.Wake) *api.Wake {
	out := &api.Wake{At: api.At(s.At), Asked: api.At(s.AskedAt), Instructions: s.Instructions, ContextViews: s.ContextViews, Priority: s.Priority, OnMiss: s.OnMiss,
		ScheduledBy: s.ScheduledBy, Job: s.Job, Depth: s.Depth, CreatedAt: api.At(s.CreatedAt)}
	if out.ContextViews == nil {
		out.ContextViews = []string{}
	}

	if s.Run != 0 {
		out.Run = id(s.Run)
	}
	return out
}

func (s *server) wakes(r *http.Request) (any, error) {
	return s.backend.Wakes.Wakes(r.Context(), r.URL.Query().Get("agent"))
}

func (s *server) setWake(r *http.Request) (any, error) {
	var in api.WakeRequest
	if err := read(r, &in); err != nil {
		return nil, err
	}

	switch {
	case in.Agent == "":
		return nil, usage("name the agent")
	case in.At != "" && in.In != "":
		return nil, usage("give a time or a length of time, not both")
	}
	return s.backend.Wakes.SetWake(r.Context(), in)
}

func (s *server) cancelWake(r *http.Request) (any, error) {
	var in api.AgentName
	if err := read(r, &in); err != nil {
		return nil, err
	}
	if in.Agent == "" {
		return nil, usage("name the agent")
	}

	return s.backend.Wakes.CancelWake(r.Context(), in.Agent)
}
