package web

import (
	"context"
	"net/http"
	"time"

	"rouse/agentdb/ledger"
)

// TimeEngine is the part of an Engine that pauses, plans and explains. Times are texts as a
// person writes them: they mean what clocks show in the engine's time zone.
type TimeEngine interface {
	Pause(ctx context.Context, ask PauseAsk) (Paused, error)
	Resume(ctx context.Context, scope, name string) (Resumed, error)
	// Why accounts for the instants of a job around a time, or up to now when it is "".
	Why(ctx context.Context, job, at string, n int) (Why, error)
	// Slots are what agents planned and may plan: of those that plan, or of one.
	Slots(ctx context.Context, agent string) ([]AgentSlot, error)
	// PlanSlot plans an agent's next wake for its owner. What is left out stays as it was planned.
	PlanSlot(ctx context.Context, ask SlotAsk) (Planned, error)
	ClearSlot(ctx context.Context, agent string) (Cleared, error)
}

// Pause is a pause as `rouse pause --json` lists it.
type Pause struct {
	Scope  string `json:"scope"` // job, agent or all
	Name   string `json:"name"`  // "" for all
	Since  Time   `json:"since"`
	Until  Time   `json:"until"` // null: until somebody resumes
	Reason string `json:"reason"`
	By     string `json:"by"`
}

// NewPause is a pause of the ledger.
func NewPause(p ledger.Pause) Pause {
	return Pause{Scope: p.Scope, Name: p.Name, Since: Time{p.Since}, Until: Time{p.Until}, Reason: p.Reason, By: p.Paused}
}

// PauseAsk asks for a pause: for a length of time, until a time, or until it is resumed.
type PauseAsk struct {
	Scope  string `json:"scope"`
	Name   string `json:"name,omitempty"`
	For    string `json:"for,omitempty"`
	Until  string `json:"until,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Paused is a pause that has just begun.
type Paused struct {
	Pause
	Zone    string   `json:"zone"`    // in which the time was read
	Running []string `json:"running"` // runs that are on, and go on
	Held    []Pause  `json:"held"`    // what holds the same thing too
}

// Resumed is what is left after a pause was ended.
type Resumed struct {
	Scope string  `json:"scope"`
	Name  string  `json:"name"`
	Zone  string  `json:"zone"`
	Held  []Pause `json:"held"` // what holds it still
}

// timeRoutes are the parts of /v1 that are about time.
func (s *server) timeRoutes(mux *http.ServeMux) {
	mux.Handle("GET /v1/pauses", s.answer(s.pauses))
	mux.Handle("POST /v1/pauses", s.answer(s.pause))
	mux.Handle("POST /v1/pauses/end", s.answer(s.resume))
	mux.Handle("GET /v1/why", s.answer(s.why))
	mux.Handle("GET /v1/slots", s.answer(s.slots))
	mux.Handle("POST /v1/slots", s.answer(s.planSlot))
	mux.Handle("POST /v1/slots/clear", s.answer(s.clearSlot))
}

func (s *server) pauses(r *http.Request) (any, error) {
	now := time.Now()
	all, err := s.ledger.Pauses(r.Context(), now)
	out := []Pause{}
	for _, p := range all {
		out = append(out, NewPause(p))
	}
	return out, err
}

func (s *server) pause(r *http.Request) (any, error) {
	var in PauseAsk
	if err := read(r, &in); err != nil {
		return nil, err
	}
	if err := pauseScope(in.Scope, in.Name); err != nil {
		return nil, err
	}
	return s.engine.Pause(r.Context(), in)
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
	return s.engine.Resume(r.Context(), in.Scope, in.Name)
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
