package why

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/pause"
	"rouse/scheduler/schedule"
)

// sourceRetry is the source of a run's later attempts.
const sourceRetry = "retry"

// maxDelayed is the maximum number of delayed runs to read.
const maxDelayed = 1000

// Next returns the next n occurrences of a job. If job is empty, it returns those of all jobs.
func (x *Explainer) Next(ctx context.Context, job string, n int) ([]api.Occurrence, error) {
	if err := x.Setup().Usable(); err != nil {
		return nil, err
	}

	now := x.Ledger.Now()
	out := []api.Occurrence{}
	for _, u := range x.Scheduler.Next(job, n, now) {
		out = append(out, api.Occurrence{Job: u.Job, Agent: u.Agent, Source: u.Source, Nominal: api.At(u.Nominal), Actual: api.At(u.Actual),
			Decision: u.Decision, Reason: u.Reason})
	}

	delayed, err := x.Ledger.Runs.Delayed(ctx, job, now, maxDelayed)
	if err != nil {
		return nil, err
	}

	pauses, err := x.Ledger.Pauses.List(ctx, now)
	if err != nil {
		return nil, err
	}

	for _, r := range delayed {
		if r.State == domain.StateQueued { // otherwise it has already started
			out = append(out, delayedRun(r, pauses))
		}
	}

	following, err := x.following(ctx, job, n)
	if err != nil {
		return nil, err
	}
	out = append(out, following...)

	handovers, err := x.Handovers(ctx, job, now)
	if err != nil {
		return nil, err
	}
	out = append(out, handovers...)

	// Each list has up to n entries, so cut the merged list.
	slices.SortStableFunc(out, func(a, b api.Occurrence) int { return a.Actual.Compare(b.Actual.Time) })
	return out[:min(n, len(out))], nil
}

// delayedRun returns the occurrence of an accepted run that waits for its time.
func delayedRun(r ledger.Run, pauses []pause.Pause) api.Occurrence {
	o := api.Occurrence{Job: r.Job, Agent: r.Agent, Source: string(r.Trigger), Nominal: api.At(r.ScheduledAt), Actual: api.At(r.NotBefore),
		Decision: domain.DecisionRun, Run: fmt.Sprint(r.ID)}
	if r.ScheduledAt.IsZero() {
		o.Nominal.Time = r.QueuedAt
	}

	// For a scheduled run, show the source, for example cron, instead of the trigger.
	var detail ledger.TriggerDetail
	if json.Unmarshal(r.Detail, &detail) == nil && detail.Source != "" {
		o.Source = detail.Source
	}

	o.Reason = fmt.Sprintf("run %d, held back: %s", r.ID, schedule.HeldText(o.Source, r.NotBefore.Sub(o.Nominal.Time)))

	// Pauses do not affect runs that were started manually.
	if p, ok := pause.Paused(pauses, r.Job, r.Agent, r.NotBefore); ok && r.Trigger != domain.TriggerManual {
		o.Reason += "; waits for the end of the pause: " + p.String()
	}

	return o
}

// sourceAfter is the source of a run that follows a run of another job.
const sourceAfter = string(domain.TriggerAfter)

// following returns the future runs of a job that follow runs of other jobs. Their time is the
// start of the preceding run.
func (x *Explainer) following(ctx context.Context, name string, n int) ([]api.Occurrence, error) {
	j := x.Setup().Job(name)
	if j == nil || !config.On(j.Enabled) {
		return nil, nil
	}

	var out []api.Occurrence
	for _, f := range j.Follows {
		// The other job may follow jobs, too. The configuration cannot contain a cycle.
		coming, err := x.Next(ctx, f.Job, n)
		if err != nil {
			return nil, err
		}
		for _, o := range coming {
			if o.Decision == domain.DecisionRun && o.Job == f.Job {
				reason := fmt.Sprintf("once the run of %s that begins then has ended (%s)", f.Job, plan.OutcomesText(f.On))
				out = append(out, api.Occurrence{Job: name, Agent: j.Agent, Source: sourceAfter, Nominal: o.Nominal, Actual: o.Actual, Decision: domain.DecisionRun, Reason: reason})
			}
		}
	}
	return out, nil
}
