package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/scheduler/schedule"
)

// sourceRetry is the source of an attempt after the first.
const sourceRetry = "retry"

// maxDelayed is the maximum number of delayed runs to read.
const maxDelayed = 1000

// Next implements web.Backend.
func (d *Daemon) Next(ctx context.Context, job string, n int) ([]api.Occurrence, error) {
	if err := d.Current().usable(); err != nil {
		return nil, err
	}

	now := d.ledger.Now()
	out := []api.Occurrence{}
	for _, u := range d.scheduler.Next(job, n, now) {
		out = append(out, api.Occurrence{Job: u.Job, Agent: u.Agent, Source: u.Source, Nominal: api.At(u.Nominal), Actual: api.At(u.Actual),
			Decision: u.Decision, Reason: u.Reason})
	}

	delayed, err := d.ledger.Delayed(ctx, job, now, maxDelayed)
	if err != nil {
		return nil, err
	}

	pauses, err := d.ledger.Pauses(ctx, now)
	if err != nil {
		return nil, err
	}

	for _, r := range delayed {
		if r.State != domain.StateQueued { // already started: its retry or the end of its wait is not a start
			continue
		}
		out = append(out, delayedRun(r, pauses))
	}

	following, err := d.following(ctx, job, n)
	if err != nil {
		return nil, err
	}
	out = append(out, following...)

	handovers, err := d.handovers(ctx, job, now)
	if err != nil {
		return nil, err
	}
	out = append(out, handovers...)

	// Both lists hold up to n, so cut only once they are merged.
	slices.SortStableFunc(out, func(a, b api.Occurrence) int { return a.Actual.Compare(b.Actual.Time) })
	return out[:min(n, len(out))], nil
}

// delayedRun is a run that has been accepted and waits for its time.
func delayedRun(r ledger.Run, pauses []ledger.Pause) api.Occurrence {
	o := api.Occurrence{Job: r.Job, Agent: r.Agent, Source: string(r.Trigger), Nominal: api.At(r.ScheduledAt), Actual: api.At(r.NotBefore),
		Decision: domain.DecisionRun, Run: fmt.Sprint(r.ID)}
	if r.ScheduledAt.IsZero() {
		o.Nominal.Time = r.QueuedAt
	}

	// For a scheduled run the source (cron, interval) says more than its trigger.
	var detail ledger.Detail
	if json.Unmarshal(r.Detail, &detail) == nil && detail.Source != "" {
		o.Source = detail.Source
	}

	o.Reason = fmt.Sprintf("run %d, held back: %s", r.ID, schedule.HeldText(o.Source, r.NotBefore.Sub(o.Nominal.Time)))

	// A pause never holds back a run that was started manually.
	if p, ok := ledger.Paused(pauses, r.Job, r.Agent, r.NotBefore); ok && r.Trigger != domain.TriggerManual {
		o.Reason += "; waits for the end of the pause: " + p.String()
	}

	return o
}
