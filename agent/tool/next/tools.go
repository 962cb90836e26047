package next

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
)

//go:embed schedule_next_run.md
var scheduleText string

//go:embed cancel_next_run.md
var cancelText string

// The specs of the tools.
var (
	// Each agent has one planned wake, and the last write wins. A call repeated after a crash
	// overwrites the wake it stored before.
	scheduleSpec = tool.Spec{
		Name: "schedule_next_run", Description: scheduleText, Effect: domain.EffectDatabase, Class: tool.ClassOther, Scope: tool.ScopeAgent, Writes: tool.WritesWake,
		Example: `{"in_seconds":7200,"instructions":"Look whether the invoice was answered."}`, Args: reflect.TypeFor[scheduleArgs](), Requires: tool.RequiresSelfScheduling, Enum: map[string][]string{"priority": priorities, "on_miss": onMisses},
	}
	cancelSpec = tool.Spec{
		Name: "cancel_next_run", Description: cancelText, Effect: domain.EffectDatabase, Class: tool.ClassOther, Scope: tool.ScopeAgent, Writes: tool.WritesNothing,
		Example: `{}`, Args: reflect.TypeFor[cancelArgs](), Requires: tool.RequiresSelfScheduling,
	}
)

// Specs returns the specs of all tools in this package.
func Specs() tool.Specs { return tool.Specs{scheduleSpec, cancelSpec} }

// Options configures the tools of one run.
type Options struct {
	Ledger *ledger.Ledger
	Limits schedule.Limits
	Wake   *ledger.WakeDetail       // of the run, if a wake started it
	Redact func(text string) string // removes secrets from instructions; optional
	// ViewProblem describes why the rows of a saved view cannot be shown. It returns "" if they
	// can. Nil if the agent has no database.
	ViewProblem func(ctx context.Context, name string) (string, error)
}

// Tools returns the tools of one run, for an agent that may plan its own runs.
func Tools(o Options) ([]tool.Tool, error) {
	spec := scheduleSpec
	spec.Description += fmt.Sprintf("A time without a zone is read in %s.\n", zoneName(zone(o.Limits)))
	plan, err := tool.Define(spec, o.scheduleNextRun)
	if err != nil {
		return nil, err
	}

	cancel, err := tool.Define(cancelSpec, o.cancelNextRun)
	if err != nil {
		return nil, err
	}
	return []tool.Tool{plan, cancel}, nil
}

type scheduleArgs struct {
	ScheduledAt  string        `json:"scheduled_at,omitempty" jsonschema:"RFC 3339, like 2026-11-21T08:00:00+01:00; wins over in_seconds"`
	InSeconds    *int64        `json:"in_seconds,omitempty" jsonschema:"seconds from now, 0 or more"`
	Instructions string        `json:"instructions" jsonschema:"all that you will be told then, at most 8000 characters"`
	ContextViews []string      `json:"context_views,omitempty" jsonschema:"names of saved views whose rows that run begins with"`
	Priority     string        `json:"priority,omitempty" jsonschema:"low may be put off and then dropped when everything is busy; the default is normal"`
	OnMiss       domain.OnMiss `json:"on_miss,omitempty" jsonschema:"what is done when nothing could run at that time: skip it, or run it late (run_once, the default, and run_catchup)"`
}

func (o Options) scheduleNextRun(ctx context.Context, in tool.Invocation, a scheduleArgs) (tool.Envelope, error) {
	r := Request{Agent: in.Agent, Instructions: a.Instructions, ContextViews: a.ContextViews, Priority: a.Priority, OnMiss: a.OnMiss,
		Run: in.Run, Key: in.Key, Job: in.Job, Wake: o.Wake}
	if o.Redact != nil {
		r.Instructions = o.Redact(r.Instructions)
	}

	// Both functions return *Invalid for a mistake in the request.
	err := a.when(&r, zone(o.Limits))
	var res Result
	if err == nil {
		res, err = PlanWake(ctx, o.Ledger, o.Limits, r)
	}

	var invalid *Invalid
	switch {
	case errors.As(err, &invalid):
		return tool.Failure(tool.KindInvalidArgs, "%s", invalid.Message).WithField(invalid.Field, invalid.Expected), nil
	case err != nil:
		return tool.Envelope{}, err
	}

	if !res.Rejected {
		missing, err := o.viewWarnings(ctx, r.ContextViews)
		if err != nil {
			return tool.Envelope{}, err
		}
		res.Warnings = append(res.Warnings, missing...)
	}

	return tool.Success(res, res.Warnings...), nil
}

// viewWarnings returns a warning for each view that currently has no rows to show. The plan is
// stored regardless: the view can still be defined, and the wake reports missing views again.
func (o Options) viewWarnings(ctx context.Context, names []string) ([]string, error) {
	if len(names) > 0 && o.ViewProblem == nil {
		return []string{"context_views: you have no database, so that run begins without rows."}, nil
	}

	var out []string
	for _, name := range names {
		problem, err := o.ViewProblem(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("the saved views cannot be looked up: %w", err)
		}
		if problem != "" {
			out = append(out, fmt.Sprintf("context_views: %s. Mend it before that run, which else begins without those rows.", problem))
		}
	}

	return out, nil
}

// when sets the time of a request. scheduled_at has priority over in_seconds.
func (a scheduleArgs) when(r *Request, zone *time.Location) error {
	switch {
	case a.ScheduledAt != "":
		at, err := ParseTime(a.ScheduledAt, zone)
		r.At = at
		return err
	case a.InSeconds == nil:
		return &Invalid{"scheduled_at", "a time is missing", expectedTime + ", or in_seconds"}
	case *a.InSeconds < 0:
		return &Invalid{"in_seconds", "in_seconds is less than 0", "a whole number from 0 on"}
	}

	// Cap the seconds to the longest Duration. The horizon is shorter anyway.
	r.In = time.Duration(min(*a.InSeconds, math.MaxInt64/int64(time.Second))) * time.Second
	return nil
}

const expectedTime = "an RFC 3339 time like 2026-11-21T08:00:00+01:00"

// timeForms are the forms of RFC 3339 and ISO 8601 that people and models write.
var timeForms = []string{"2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05Z0700", "2006-01-02T15:04Z07:00", "2006-01-02T15:04Z0700", "2006-01-02T15:04:05", "2006-01-02T15:04"}

// ParseTime parses the time of a wake. A time without a zone is local time in zone. The error is an
// *Invalid.
func ParseTime(when string, zone *time.Location) (time.Time, error) {
	plain := strings.ToUpper(strings.TrimSpace(when))
	if len(plain) > 10 && plain[10] == ' ' { // a space is often written instead of the T
		plain = plain[:10] + "T" + strings.TrimLeft(plain[10:], " ")
	}

	for _, form := range timeForms {
		if at, err := time.ParseInLocation(form, plain, zone); err == nil && plausible(at) {
			return at, nil
		}
	}
	return time.Time{}, &Invalid{"scheduled_at", fmt.Sprintf("%q is not a time", text.Truncate(when, 60)), expectedTime}
}

type cancelArgs struct{}

type cancelResult struct {
	Cancelled bool `json:"cancelled"`
}

func (o Options) cancelNextRun(ctx context.Context, in tool.Invocation, _ cancelArgs) (tool.Envelope, error) {
	if o.Limits.Mode == schedule.ModeManual { // only the owner plans wakes, so only the owner cancels them
		return tool.Success(cancelResult{}, "Not cancelled: in manual mode only the owner plans when this agent wakes."), nil
	}

	cancelled, err := o.Ledger.Wakes.Cancel(ctx, in.Agent, ledger.ByAgent)
	if err != nil {
		return tool.Envelope{}, fmt.Errorf("the next run of %s cannot be cancelled: %w", in.Agent, err)
	}
	return tool.Success(cancelResult{cancelled}), nil
}

// zone returns the zone of times that are written without one.
func zone(l schedule.Limits) *time.Location {
	if l.Zone == nil {
		return time.UTC
	}
	return l.Zone
}

func zoneName(z *time.Location) string {
	if z.String() == "Local" {
		return "the local time of this machine"
	}
	return z.String()
}
