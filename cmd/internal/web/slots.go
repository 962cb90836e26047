package web

import (
	"context"
	"net/http"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
)

// Slots are the wakes that agents planned, and what they may plan.
type Slots interface {
	// Slots are those of the agents that plan, or of one.
	Slots(ctx context.Context, agent string) ([]api.AgentSlot, error)
	// PlanSlot plans an agent's next wake for its owner. What is left out stays as it was planned.
	PlanSlot(ctx context.Context, request api.SlotRequest) (api.Planned, error)
	ClearSlot(ctx context.Context, agent string) (api.Cleared, error)
}

func (s *server) slotRoutes(mux *http.ServeMux) {
	mux.Handle("GET /v1/slots", s.answer(s.slots))
	mux.Handle("POST /v1/slots", s.answer(s.planSlot))
	mux.Handle("POST /v1/slots/clear", s.answer(s.clearSlot))
}

// NewSlot is a slot of the ledger.
func NewSlot(s ledger.Slot) *api.Slot {
	out := &api.Slot{At: api.At(s.At), Asked: api.At(s.AskedAt), Instructions: s.Instructions, ContextViews: s.ContextViews, Priority: s.Priority, OnMiss: s.OnMiss,
		ScheduledBy: s.ScheduledBy, Job: s.Job, Depth: s.Depth, CreatedAt: api.At(s.CreatedAt)}
	if out.ContextViews == nil {
		out.ContextViews = []string{}
	}

	if s.Run != 0 {
		out.Run = id(s.Run)
	}
	return out
}

func (s *server) slots(r *http.Request) (any, error) {
	return s.behind.Slots.Slots(r.Context(), r.URL.Query().Get("agent"))
}

func (s *server) planSlot(r *http.Request) (any, error) {
	var in api.SlotRequest
	if err := read(r, &in); err != nil {
		return nil, err
	}

	switch {
	case in.Agent == "":
		return nil, usage("name the agent")
	case in.At != "" && in.In != "":
		return nil, usage("give a time or a length of time, not both")
	}
	return s.behind.Slots.PlanSlot(r.Context(), in)
}

func (s *server) clearSlot(r *http.Request) (any, error) {
	var in struct {
		Agent string `json:"agent"`
	}
	if err := read(r, &in); err != nil {
		return nil, err
	}
	if in.Agent == "" {
		return nil, usage("name the agent")
	}

	return s.behind.Slots.ClearSlot(r.Context(), in.Agent)
}
