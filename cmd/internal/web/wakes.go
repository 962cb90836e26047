package web

import (
	"net/http"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
)

func (s *Server) wakeRoutes() []Route {
	return []Route{
		get[[]api.AgentWake]("/v1/slots", "The wakes that agents have planned, and may plan.", s.answer(s.wakes), Param{Name: "agent", Kind: ParamText, Says: "of one agent"}),
		post[api.WakeRequest, api.PlannedWake]("/v1/slots", "Plans an agent's next wake.", s.answer(withBody(s.setWake))),
		post[api.AgentName, api.CancelledWake]("/v1/slots/clear", "Cancels an agent's next wake.", s.answer(withBody(s.cancelWake))),
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

func (s *Server) wakes(r *http.Request) (any, error) {
	return s.backend.Wakes(r.Context(), r.URL.Query().Get("agent"))
}

func (s *Server) setWake(r *http.Request, in api.WakeRequest) (any, error) {
	switch {
	case in.Agent == "":
		return nil, usage("name the agent")
	case in.At != "" && in.In != "":
		return nil, usage("give a time or a length of time, not both")
	}
	return s.backend.SetWake(r.Context(), in)
}

func (s *Server) cancelWake(r *http.Request, in api.AgentName) (any, error) {
	if in.Agent == "" {
		return nil, usage("name the agent")
	}

	return s.backend.CancelWake(r.Context(), in.Agent)
}
