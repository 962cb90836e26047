package control

import (
	"context"
	"fmt"
	"strings"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/plan"
	"rouse/internal/ledger"
	"rouse/internal/ledger/pause"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
)

// Pause starts a pause.
func (x *Schedule) Pause(ctx context.Context, ask api.PauseRequest) (api.Paused, error) {
	s, now := x.Setup(), x.Ledger.Now()
	out := api.Paused{Zone: s.Config.Zone().String(), Running: []string{}, Held: []api.Pause{}}

	err := s.KnownScope(ask.Scope, ask.Name)
	if err == nil && ask.Until != "" {
		err = s.Usable() // local times need the configured time zone
	}
	if err != nil {
		return out, err
	}

	until, err := PauseEnd(ask, now, s.Config.Zone())
	if err != nil {
		return out, &api.Error{Message: err.Error(), Usage: true}
	}

	p, err := x.Ledger.Pauses.Set(ctx, pause.Pause{Scope: ask.Scope, Name: ask.Name, Until: until, Reason: x.Runner.Plan.Redact(strings.TrimSpace(ask.Reason)), By: ledger.ByUser})
	if err != nil {
		return out, err
	}

	out.Pause = api.NewPause(p)
	// A pause does not stop running runs. List them, because the owner may want to cancel them.
	running, err := x.Ledger.Runs.Running(ctx)
	if err != nil {
		return out, err
	}

	for _, r := range running {
		if _, about := pause.Paused([]pause.Pause{p}, r.Job, r.Agent, p.Since); about {
			out.Running = append(out.Running, fmt.Sprint(r.ID))
		}
	}

	out.Held, err = x.otherPauses(ctx, s, ask.Scope, ask.Name)
	return out, err
}

// PauseEnd returns the time a requested pause ends, or the zero time if it has no end.
func PauseEnd(ask api.PauseRequest, now time.Time, zone *time.Location) (time.Time, error) {
	switch {
	case ask.For != "" && ask.Until != "":
		return time.Time{}, fmt.Errorf("give a length of time or an end, not both")
	case ask.For != "":
		length, err := config.ParseDuration(ask.For)
		if err == nil && length <= 0 {
			err = fmt.Errorf("a pause of %q would be none", ask.For)
		}

		// JSON cannot represent a time after the year 9999.
		if end := now.Add(length); err == nil && end.Year() > 9999 {
			err = fmt.Errorf("%q is too long; without a length of time the pause lasts until somebody resumes", ask.For)
		}
		return now.Add(length), err
	case ask.Until != "":
		w, err := schedule.ParseTime(ask.Until, now, zone, true)
		if err != nil {
			return w.At, err
		}

		if !w.At.After(now) {
			// A date means the start of the day, which may have passed although the day has not
			// ended.
			hint := ""
			if w.Precision > 12*time.Hour && now.Before(w.At.Add(w.Precision)) {
				hint = "; for the rest of today write tomorrow"
			}
			return w.At, fmt.Errorf("%s has passed: it is %s%s", api.LocalTime(w.At, zone), api.LocalTime(now, zone), hint)
		}

		return w.At, nil
	}
	return time.Time{}, nil
}

// Resume ends a pause. It also works for jobs and agents that are no longer configured.
func (x *Schedule) Resume(ctx context.Context, scope, name string) (api.Resumed, error) {
	s := x.Setup()
	out := api.Resumed{Scope: scope, Name: name, Zone: s.Config.Zone().String(), Held: []api.Pause{}}
	ended, err := x.Ledger.Pauses.End(ctx, scope, name)
	if err != nil {
		return out, err
	}

	// Check the name only if no pause ended, so that a removed job can be resumed.
	if !ended && scope != pause.All {
		if err := s.KnownScope(scope, name); err != nil {
			return out, err
		}
	}

	out.Held, err = x.otherPauses(ctx, s, scope, name)
	if err != nil || ended {
		return out, err
	}

	return out, &api.Error{Status: 409, Message: nothingToResume(scope, name, out.Held, s.Config.Zone())}
}

// nothingToResume returns the message for a missing pause. It lists other pauses of the same jobs.
func nothingToResume(scope, name string, held []api.Pause, zone *time.Location) string {
	said := fmt.Sprintf("nothing to resume: %s is not paused", api.ScopeText(scope, name))
	switch {
	case scope == pause.All && len(held) > 0:
		said = "nothing to resume: there is no pause of everything, only these"
	case scope == pause.All:
		said = "nothing to resume: nothing is paused"
	case len(held) > 0:
		said += " by itself"
	}
	for _, p := range held {
		said += fmt.Sprintf("\n  %s; resume with: rouse resume %s", text.OneLine(p.Text(zone)), api.ScopeArgs(p.Scope, p.Name))
	}
	return said
}

// otherPauses returns the other current pauses that cover some of the same jobs.
func (x *Schedule) otherPauses(ctx context.Context, s *plan.Setup, scope, name string) ([]api.Pause, error) {
	out := []api.Pause{}
	all, err := x.Ledger.Pauses.List(ctx, x.Ledger.Now())
	for _, p := range all {
		if (p.Scope != scope || p.Name != name) && s.Overlaps(scope, name, p.Scope, p.Name) {
			out = append(out, api.NewPause(p))
		}
	}

	return out, err
}
