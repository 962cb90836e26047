package next

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/wake"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
)

// Limits of a request, in characters and names.
const (
	maxInstructions = 8000
	maxViews        = 20
	maxViewName     = 100
)

// Default values of a request.
const (
	defaultPriority = "normal"
	defaultOnMiss   = domain.MissRunOnce
)

var (
	priorities = []string{defaultPriority, wake.PriorityLow}
	onMisses   = []string{string(domain.MissSkip), string(defaultOnMiss), string(domain.MissCatchup)}
)

// Request asks for an agent's next wake. It replaces the wake that is already planned.
type Request struct {
	Agent  string
	ByUser bool      // the owner asks; only the horizon limits the request
	At     time.Time // zero means In from now
	// In is counted from the moment of the decision, so that a request for the shortest allowed
	// time is not clamped.
	In           time.Duration
	Instructions string
	ContextViews []string
	Priority     string        // "" means normal
	OnMiss       domain.OnMiss // "" means run_once

	Run  int64              // requesting run; zero if the owner asks
	Key  string             // of the run's call
	Job  string             // of the run; if the owner changes a planned wake, the job of that wake
	Wake *ledger.WakeDetail // wake that started the run, if any
}

// Result describes what was stored for a Request. Its JSON is the tool's result.
type Result struct {
	Clamped      bool     `json:"clamped"` // the time differs from the requested one
	ClampReasons []string `json:"clamp_reasons"`
	// Remaining is the number of wakes that may still start within 24 hours, including this one.
	// Nil means no limit.
	Remaining *int `json:"remaining_budget_today"`
	Rejected  bool `json:"rejected,omitempty"`
	*PlannedWake
	Warnings []string `json:"-"` // one sentence per reason, and other notes
}

// PlannedWake is the wake as it was stored. It is nil for a rejected request.
type PlannedWake struct {
	ScheduledAt  time.Time     `json:"scheduled_at"` // in the agent's zone
	Instructions string        `json:"instructions"`
	ContextViews []string      `json:"context_views"`
	Priority     string        `json:"priority"`
	OnMiss       domain.OnMiss `json:"on_miss"`
	ScheduledBy  string        `json:"scheduled_by"`
}

// Invalid is the error of a mistake in a request. Field is the name of the faulty argument.
type Invalid struct{ Field, Message, Expected string }

func (e *Invalid) Error() string { return fmt.Sprintf("%s; expected %s", e.Message, e.Expected) }

// check returns an *Invalid if the request has a mistake that clamping does not correct.
func (r Request) check() error {
	length := utf8.RuneCountInString(r.Instructions)
	switch {
	case strings.TrimSpace(r.Instructions) == "":
		return &Invalid{"instructions", "the instructions are blank, and nothing else will tell the agent what to do", "what to do at that time"}
	case length > maxInstructions:
		return &Invalid{"instructions", fmt.Sprintf("the instructions have %d characters", length), fmt.Sprintf("at most %d characters; keep more in a file or a table, and say where", maxInstructions)}
	case len(r.ContextViews) > maxViews:
		return &Invalid{"context_views", fmt.Sprintf("there are %d views", len(r.ContextViews)), fmt.Sprintf("at most %d names", maxViews)}
	case slices.ContainsFunc(r.ContextViews, func(v string) bool { return strings.TrimSpace(v) == "" || utf8.RuneCountInString(v) > maxViewName }):
		return &Invalid{"context_views", "a view has no name, or one that is too long", fmt.Sprintf("names of at most %d characters", maxViewName)}
	case r.In < 0:
		return &Invalid{"in_seconds", "the time would lie before now", "0 or more"}
	case !r.At.IsZero() && !plausible(r.At):
		return &Invalid{"scheduled_at", "no calendar shows that time", expectedTime}
	case r.Priority != "" && !slices.Contains(priorities, r.Priority):
		return &Invalid{"priority", fmt.Sprintf("there is no priority %q", r.Priority), "one of " + strings.Join(priorities, ", ")}
	case r.OnMiss != "" && !slices.Contains(onMisses, string(r.OnMiss)):
		return &Invalid{"on_miss", fmt.Sprintf("there is no on_miss %q", r.OnMiss), "one of " + strings.Join(onMisses, ", ")}
	}

	return nil
}

// plausible reports whether RFC 3339 can express a time in UTC.
func plausible(t time.Time) bool { return t.UTC().Year() >= 1 && t.UTC().Year() <= 9999 }

// PlanWake clamps a request and stores the result. It returns an *Invalid if the request has a
// mistake. Any other error is an error of the host.
func PlanWake(ctx context.Context, l *ledger.Ledger, limits schedule.Limits, r Request) (Result, error) {
	if err := r.check(); err != nil {
		return Result{}, err
	}

	// Read before the wake is stored. The previous wake is only used for a warning.
	before, had, err := l.Wakes.Next(ctx, r.Agent)
	if err != nil {
		return Result{}, fmt.Errorf("what is planned for %s cannot be read: %w", r.Agent, err)
	}

	var clamped schedule.ClampResult
	var usage schedule.Usage
	var slot *wake.Wake
	for err = wake.ErrUsageChanged; errors.Is(err, wake.ErrUsageChanged); {
		var u wake.Usage
		if u, err = l.Wakes.Usage(ctx, r.Agent); err != nil {
			break
		}
		now := l.Now()
		ask := schedule.WakeRequest{At: r.At, ByUser: r.ByUser, Depth: r.depth()}
		if ask.At.IsZero() {
			ask.At = now.Add(r.In)
		}

		usage = schedule.Usage{Started: u.Started, Paused: u.Paused}
		if clamped = limits.Clamp(now, ask, usage); clamped.Rejected {
			break
		}
		var stored wake.Wake
		stored, err = l.Wakes.Set(ctx, r.wake(ask.At, clamped.At), u)
		slot = &stored
	}
	if err != nil {
		return Result{}, fmt.Errorf("the next run of %s cannot be planned: %w", r.Agent, err)
	}

	res := newResult(limits, clamped, usage, slot)
	if slot == nil {
		return res, nil
	}

	// No warning if the run replaces its own plan.
	if had && (before.Run != r.Run || r.Run == 0) {
		res.Warnings = append(res.Warnings, replaced(before, zone(limits)))
	}

	return res, nil
}

// depth returns the number of consecutive wakes, planned by the agent itself, that led to the
// requesting run.
func (r Request) depth() int {
	if r.Wake == nil || r.ByUser {
		return 0
	}
	return r.Wake.Depth
}

// wake returns the wake in its stored form. A wake planned by the owner starts a new chain.
func (r Request) wake(asked, at time.Time) wake.Wake {
	s := wake.Wake{
		Agent: r.Agent, At: at, AskedAt: asked, Instructions: r.Instructions, ContextViews: r.ContextViews, Priority: r.Priority, OnMiss: r.OnMiss,
		ScheduledBy: ledger.ByAgent, Run: r.Run, Key: r.Key, Job: r.Job, Depth: r.depth() + 1,
	}
	if r.ByUser {
		s.ScheduledBy, s.Depth = ledger.ByUser, 0
	}

	// Use the job at the start of the chain, not that of the current run.
	if r.Wake != nil {
		s.Job = r.Wake.Job
	}

	if s.Priority == "" {
		s.Priority = defaultPriority
	}

	if s.OnMiss == "" {
		s.OnMiss = defaultOnMiss
	}

	return s
}

func newResult(limits schedule.Limits, c schedule.ClampResult, u schedule.Usage, s *wake.Wake) Result {
	res := Result{Clamped: len(c.Reasons) > 0 && !c.Rejected, ClampReasons: c.Reasons, Rejected: c.Rejected}
	if left := limits.WakesLeft(u); left >= 0 {
		res.Remaining = &left
	}

	for _, reason := range c.Reasons {
		res.Warnings = append(res.Warnings, schedule.Warning(reason, limits, c))
	}

	if res.ClampReasons == nil { // an empty JSON list instead of null
		res.ClampReasons = []string{}
	}

	if s != nil {
		res.PlannedWake = &PlannedWake{ScheduledAt: s.At.In(zone(limits)), Instructions: s.Instructions, ContextViews: s.ContextViews,
			Priority: s.Priority, OnMiss: s.OnMiss, ScheduledBy: s.ScheduledBy}
		if res.ContextViews == nil {
			res.ContextViews = []string{}
		}
	}

	return res
}

// replaced returns a warning that describes the previously planned wake, which the new wake
// replaces.
func replaced(s wake.Wake, zone *time.Location) string {
	by := "its owner"
	if s.ScheduledBy == ledger.ByAgent {
		by = fmt.Sprintf("run %d", s.Run)
	}
	return fmt.Sprintf("This took the place of the wake that %s had planned for %s: %q", by, s.At.In(zone).Format("Mon 2006-01-02 15:04 MST"),
		text.Truncate(text.Collapse(s.Instructions), 200))
}
