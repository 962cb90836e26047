package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"rouse/agent/tool/next"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/plan"
	"rouse/internal/ledger"
	"rouse/internal/ledger/pause"
	"rouse/scheduler/schedule"
)

// Wakes returns the planned wake and the limits of each agent with self-scheduling. If agent is not
// empty, it returns only that agent.
func (x *Schedule) Wakes(ctx context.Context, agent string) ([]api.AgentWake, error) {
	s := x.Setup()
	if err := s.Known("", agent); err != nil {
		return nil, err
	}

	out := []api.AgentWake{}
	for i := range s.Config.Agents {
		a := &s.Config.Agents[i]
		if agent != "" && string(a.Name) != agent {
			continue
		}

		wake, err := x.agentWake(ctx, s, a)
		if err != nil {
			return nil, err
		}

		// A wake planned before self-scheduling was switched off remains until a daemon applies the
		// change.
		if agent != "" || wake.Planning || wake.Wake != nil {
			out = append(out, wake)
		}
	}

	return out, nil
}

// agentWake returns the planned wake of an agent and its limits.
func (x *Schedule) agentWake(ctx context.Context, s *plan.Setup, a *config.Agent) (api.AgentWake, error) {
	name := string(a.Name)
	out := api.AgentWake{Agent: name, Zone: s.Config.Zone().String()}
	wake, planned, err := x.Ledger.Wakes.Next(ctx, name)
	if err != nil {
		return out, err
	}
	if planned {
		out.Wake = api.NewWake(wake)
	}
	pauses, err := x.Ledger.Pauses.List(ctx, x.Ledger.Now())
	if err != nil {
		return out, err
	}
	if p, paused := pause.Paused(pauses, "", name, x.Ledger.Now()); paused {
		out.Paused = api.NewPause(p).Text(s.Config.Zone())
	}

	limits, ok := s.Config.SelfScheduling(a)
	if out.Planning = ok && config.On(a.Enabled); !out.Planning {
		out.Off = planningOff(a)
		return out, nil
	}
	usage, err := x.Ledger.Wakes.Usage(ctx, name)
	if err != nil {
		return out, err
	}
	out.Limits = wakeLimits(limits)
	if left := limits.WakesLeft(schedule.Usage{Started: usage.Started, Paused: usage.Paused}); left >= 0 { // otherwise there is no daily limit
		out.Left = &left
	}
	return out, nil
}

// planningOff returns why an agent cannot plan wakes, and how to change the configuration.
func planningOff(a *config.Agent) string {
	switch {
	case !config.On(a.Enabled):
		return fmt.Sprintf("the agent %s is disabled (enabled: false, see %s), so nothing wakes it", a.Name, a.At)
	case a.SelfScheduling != nil:
		return fmt.Sprintf("self_scheduling of the agent %s is switched off (see %s); take its enabled: false away", a.Name, a.At)
	}
	return fmt.Sprintf("self_scheduling is off for the agent %s, so no wakes are planned for it; to change that, write below its name at %s:\n    self_scheduling: {mode: ambient}     # or manual: then only you plan", a.Name, a.At)
}

func wakeLimits(l schedule.Limits) *api.WakeLimits {
	out := &api.WakeLimits{Mode: string(l.Mode), Horizon: config.Duration(l.Horizon).String(), MinInterval: config.Duration(l.MinInterval).String(),
		DailyCap: l.DailyCap, QuietHours: l.Quiet.String(), Days: []string{}, MaxChain: l.MaxChain}
	for day := range 7 {
		if l.Days>>day&1 == 1 {
			out.Days = append(out.Days, time.Weekday(day).String()[:3])
		}
	}

	return out
}

// SetWake plans the next wake of an agent for the owner. Fields that the request omits keep their
// values.
func (x *Schedule) SetWake(ctx context.Context, ask api.WakeRequest) (api.PlannedWake, error) {
	s := x.Setup()
	out := api.PlannedWake{ClampReasons: []string{}, Warnings: []string{}}
	a, limits, err := planner(s, ask.Agent)
	if err != nil {
		return out, err
	}

	r := next.Request{Agent: ask.Agent, ByUser: true, Instructions: x.Runner.Plan.Redact(ask.Instructions), Priority: ask.Priority, OnMiss: ask.OnMiss}
	if err := x.fillRequest(ctx, ask, s.Config.Zone(), &r); err != nil {
		return out, err
	}

	res, err := next.PlanWake(ctx, x.Ledger, limits, r)
	var wrong *next.Invalid
	switch {
	case errors.As(err, &wrong):
		return out, &api.Error{Message: wrong.Error(), Usage: true}
	case err != nil:
		return out, err
	}

	out.Clamped, out.ClampReasons, out.Warnings = res.Clamped, res.ClampReasons, append(out.Warnings, res.Warnings...)
	out.AgentWake, err = x.agentWake(ctx, s, a)
	return out, err
}

// planner returns a configured agent and its limits. It returns an error if no wakes can be planned
// for the agent.
func planner(s *plan.Setup, name string) (*config.Agent, schedule.Limits, error) {
	if err := s.Known("", name); err != nil {
		return nil, schedule.Limits{}, err
	}
	a := &s.Config.Agents[slices.Index(s.AgentNames(), name)]
	limits, ok := s.Config.SelfScheduling(a)
	if !ok || !config.On(a.Enabled) {
		return nil, limits, &api.Error{Status: 409, Message: planningOff(a)}
	}
	return a, limits, nil
}

// fillRequest sets the time of a request, and copies omitted fields from the planned wake.
func (x *Schedule) fillRequest(ctx context.Context, ask api.WakeRequest, zone *time.Location, r *next.Request) error {
	usage := func(message string) error { return &api.Error{Message: message, Usage: true} }
	old, planned, err := x.Ledger.Wakes.Next(ctx, ask.Agent)
	if err != nil {
		return err
	}

	switch {
	case ask.At != "":
		w, err := schedule.ParseTime(ask.At, x.Ledger.Now(), zone, true)
		if err != nil {
			return usage(err.Error())
		}
		r.At = w.At
	case ask.In != "":
		if r.In, err = config.ParseDuration(ask.In); err != nil {
			return usage(err.Error())
		}
	case planned:
		r.At = old.At
	default:
		return usage("nothing is planned for the agent " + ask.Agent + " yet; say when: --at or --in")
	}

	if !planned {
		if ask.Instructions == "" {
			return usage("nothing is planned for the agent " + ask.Agent + " yet; say what it is to do: --instructions")
		}
		return nil
	}

	r.Job, r.ContextViews = old.Job, old.ContextViews
	r.Instructions, r.Priority, r.OnMiss = cmp.Or(r.Instructions, old.Instructions), cmp.Or(r.Priority, old.Priority), cmp.Or(r.OnMiss, old.OnMiss)
	return nil
}

// CancelWake cancels the next wake of an agent.
func (x *Schedule) CancelWake(ctx context.Context, agent string) (api.CancelledWake, error) {
	s := x.Setup()
	out := api.CancelledWake{Agent: agent, Zone: s.Config.Zone().String()}
	old, planned, err := x.Ledger.Wakes.Next(ctx, agent)
	if err != nil {
		return out, err
	}

	cleared, err := x.Ledger.Wakes.Cancel(ctx, agent, ledger.ByUser)
	if err != nil {
		return out, err
	}

	// Check the name only now, so that the wake of a removed agent can be cancelled.
	if !cleared || !planned {
		if err := s.Known("", agent); err != nil {
			return out, err
		}
		return out, &api.Error{Status: 409, Message: fmt.Sprintf("nothing is planned for the agent %s, so there is nothing to cancel", agent)}
	}

	out.Cancelled, out.Wake = true, api.NewWake(old)
	return out, nil
}
