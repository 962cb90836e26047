package daemon

import (
	"context"
	"fmt"
	"strings"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/internal/text"
)

// jobFlaws returns the problems of a job that do not keep its runs from starting: what the sandbox refuses its programs,
// missing saved views, and an at: that passed without a run.
func (d *Daemon) jobFlaws(ctx context.Context, s *Setup, j *config.Job, ran bool, now time.Time) (out []string) {
	if !config.On(j.Enabled) {
		return nil
	}
	if !ran && j.Expired(now) {
		out = append(out, fmt.Sprintf("at: %s is in the past, and nothing else starts the job; write a later time (%s), or start it: rouse run %s", j.RunAt, s.Config.Where(j.At), j.Name))
	}
	out = append(out, d.runner.ProgramFlaws(ctx, string(j.Name))...)
	return append(out, d.viewFlaws(ctx, j.Agent, j.ContextViews, s.Config.Where(j.At))...)
}

// viewFlaws describes the saved views that runs of an agent cannot show, with the remedy.
func (d *Daemon) viewFlaws(ctx context.Context, agent string, views []string, where string) (out []string) {
	for _, v := range views {
		if problem := d.runner.ViewProblem(ctx, agent, v); problem != "" {
			out = append(out, fmt.Sprintf("context_views: %s, so runs begin without those rows; correct the name (%s), or have the agent save the view; see rouse db %s views", problem, where, agent))
		}
	}
	return out
}

// checkFlaws reports problems of jobs and planned wakes that do not keep runs from starting.
func (d *Daemon) checkFlaws(ctx context.Context, s *Setup) (c api.Check, some bool, err error) {
	last, err := d.ledger.LastRuns(ctx)
	if err != nil {
		return c, false, err
	}

	var found []string
	jobs := map[string][]string{} // by flaw
	now := d.ledger.Now()
	for i := range s.Config.Jobs {
		j := &s.Config.Jobs[i]
		_, ran := last[string(j.Name)]
		for _, flaw := range d.jobFlaws(ctx, s, j, ran, now) {
			if jobs[flaw] == nil {
				found = append(found, flaw)
			}
			jobs[flaw] = append(jobs[flaw], string(j.Name))
		}
	}
	for i, flaw := range found {
		found[i] = fmt.Sprintf("job %s: %s", text.List(jobs[flaw], maxLogged), flaw)
	}
	wakes, err := d.ledger.Wakes(ctx)
	if err != nil {
		return c, false, err
	}
	for _, w := range wakes {
		for _, flaw := range d.viewFlaws(ctx, w.Agent, w.ContextViews, "rouse wake "+w.Agent) {
			found = append(found, fmt.Sprintf("the planned wake of %s: %s", w.Agent, flaw))
		}
	}
	if len(found) == 0 {
		return c, false, nil
	}

	if more := len(found) - maxLogged; more > 0 {
		found = append(found[:maxLogged], fmt.Sprintf("and %d more", more))
	}
	return api.Check{Name: "work", Detail: strings.Join(found, "; "), Remedy: "see each message; the runs start in any case"}, true, nil
}
