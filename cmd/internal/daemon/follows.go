package daemon

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/internal/domain"
)

// sourceAfter is the source of a run that follows one of another job.
const sourceAfter = string(domain.TriggerAfter)

// followTrigger describes in words which runs of another job a job follows.
func followTrigger(job string, on []domain.Outcome) string {
	return fmt.Sprintf("after %s (%s)", job, outcomesText(on))
}

func outcomesText(on []domain.Outcome) string {
	var words []string
	for _, o := range on {
		words = append(words, string(o))
	}
	return strings.Join(words, ", ")
}

// following lists what comes of a job because runs of others that it follows are to come. When those will end nobody knows, so they
// stand where the run before them begins.
func (d *Daemon) following(ctx context.Context, name string, n int) ([]api.Occurrence, error) {
	j := d.Current().job(name)
	if j == nil || !config.On(j.Enabled) {
		return nil, nil
	}

	var out []api.Occurrence
	for _, f := range j.Follows {
		// What is followed may itself follow others; a circle is refused with the configuration.
		coming, err := d.Next(ctx, f.Job, n)
		if err != nil {
			return nil, err
		}

		for _, o := range coming {
			if o.Decision != domain.DecisionRun || o.Job != f.Job {
				continue
			}
			reason := fmt.Sprintf("once the run of %s that begins then has ended (%s)", f.Job, outcomesText(f.On))
			out = append(out, api.Occurrence{Job: name, Agent: j.Agent, Source: sourceAfter, Nominal: o.Nominal, Actual: o.Actual, Decision: domain.DecisionRun, Reason: reason})
		}
	}
	return out, nil
}

// followNotes say of each job that this one follows how its last run that ended was taken, and which jobs follow this one.
func (e *explanation) followNotes(ctx context.Context) []string {
	if e.job == nil {
		return nil
	}

	var out []string
	for _, f := range e.job.Follows {
		if note := e.followNote(ctx, f.Job, f.On); note != "" {
			out = append(out, note)
		}
	}
	for _, j := range e.setup.Config.Jobs {
		if on, ok := j.Followed()[e.name]; ok && config.On(j.Enabled) {
			out = append(out, fmt.Sprintf("a run of it that ends (%s) is followed by one of %s", outcomesText(on), j.Name))
		}
	}
	return out
}

// followNote is what became of the last run of a job that ended, for the job that follows it.
func (e *explanation) followNote(ctx context.Context, job string, on []domain.Outcome) string {
	last, err := e.d.ledger.Runs(ctx, ledger.RunFilter{Job: job, State: domain.StateFinished, Limit: 1})
	if err != nil {
		return fmt.Sprintf("what became of %s cannot be read: %v", job, err)
	}
	if len(last) == 0 {
		return fmt.Sprintf("no run of %s, which it follows, has ended", job)
	}

	r := last[0]
	said := fmt.Sprintf("run %d of %s ended %s (%s)", r.ID, job, r.Outcome, api.LocalTime(r.FinishedAt, e.zone))
	follower, found, err := e.d.ledger.RunByKey(ctx, ledger.FollowerKey(r.ID, e.name))
	why := cmp.Or(failureText(r.Error), failureText(r.Summary))
	switch {
	case err != nil:
		return fmt.Sprintf("%s; whether it was followed cannot be read: %v", said, err)
	case found:
		return fmt.Sprintf("%s, and was followed by run %d", said, follower.ID)
	case !slices.Contains(on, r.Outcome) && why != "":
		return fmt.Sprintf("%s, and is not followed: that is for %s; %s", said, outcomesText(on), why)
	case !slices.Contains(on, r.Outcome):
		return fmt.Sprintf("%s, and is not followed: that is for %s", said, outcomesText(on))
	}
	return said + ", and is not followed: it ended before this was in force, was only tried out, or what followed it is not kept any more"
}
