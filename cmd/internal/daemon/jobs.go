package daemon

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/web"
	"rouse/internal/text"
)

// Jobs implements web.Backend.
func (d *Daemon) Jobs(ctx context.Context) ([]api.Job, error) {
	jobs, _, err := d.FirstJobs(ctx, math.MaxInt)
	return jobs, err
}

// FirstJobs returns the first n jobs, and the number of all: each job takes a while.
func (d *Daemon) FirstJobs(ctx context.Context, n int) (_ []api.Job, all int, _ error) {
	now := d.Current()
	if err := now.usable(); err != nil {
		return nil, 0, err
	}

	last, err := d.ledger.LastRuns(ctx)
	if err != nil {
		return nil, 0, err
	}

	// Everything that is asked for all jobs at once is read before the loop.
	watches := d.watches(ctx)
	at := d.ledger.Now()
	pauses, err := d.ledger.Pauses(ctx, at)
	if err != nil {
		return nil, 0, err
	}

	open, err := d.ledger.Incidents(ctx, ledger.IncidentFilter{Limit: maxOpenIncidents})
	if err != nil {
		return nil, 0, err
	}
	incidents := map[string][]api.Incident{}
	for _, i := range open {
		incidents[i.Job] = append(incidents[i.Job], web.NewIncident(i))
	}

	handovers, err := d.handovers(ctx, "", at)
	if err != nil {
		return nil, 0, err
	}
	handedOver := map[string]api.Time{}
	for _, o := range handovers {
		handedOver[o.Job] = o.Actual
	}

	out := []api.Job{}
	for i := range min(n, len(now.Config.Jobs)) {
		j := &now.Config.Jobs[i]
		job := api.Job{Name: string(j.Name), Agent: j.Agent, Enabled: config.On(j.Enabled), Triggers: now.triggers(j), Scheduled: j.Scheduled(), Watch: watchOf(j, watches), Incidents: append([]api.Incident{}, incidents[string(j.Name)]...)}
		by := d.obstaclesOf(ctx, now, i)
		job.Obstacles, job.Blocked = newObstacles(by), len(by) > 0
		job.Problem = ledger.ObstaclesText(by)
		if w := job.Watch; w != nil && job.Problem == "" {
			job.Problem = watchProblem(*w)
		}

		job.Next = api.At(d.scheduler.NextStart(string(j.Name), at))
		if t, ok := handedOver[job.Name]; ok && (job.Next.IsZero() || t.Before(job.Next.Time)) {
			job.Next = t
		}
		if p, ok := ledger.Paused(pauses, string(j.Name), j.Agent, at); ok {
			job.Paused, job.PausedUntil, job.PausedWhy = true, api.At(p.Until), pausedWhy(p)
		}

		if r, ok := last[string(j.Name)]; ok {
			job.LastRun, job.LastState, job.LastOutcome, job.LastAt = fmt.Sprint(r.ID), r.State, r.Outcome, api.At(r.QueuedAt)
		}

		if job.Problem == "" {
			job.Problem = strings.Join(d.jobFlaws(ctx, now, j, job.LastRun != "", at), "; ")
		}

		out = append(out, job)
	}

	return out, len(now.Config.Jobs), nil
}

// maxOpenIncidents is how many open incidents are read for the listing of jobs.
const maxOpenIncidents = 1000

// Agents implements web.Backend.
func (d *Daemon) Agents(context.Context) ([]api.Agent, error) {
	now := d.Current()
	if err := now.usable(); err != nil {
		return nil, err
	}

	jobs := map[string][]string{}
	for _, j := range now.Config.Jobs {
		jobs[j.Agent] = append(jobs[j.Agent], string(j.Name))
	}

	out := []api.Agent{}
	for _, a := range now.Config.Agents {
		name := string(a.Name)
		out = append(out, api.Agent{Name: name, Enabled: config.On(a.Enabled), Model: a.Model, Mode: a.Mode, Workdir: string(a.Workdir), Database: config.On(a.Database.Enabled), Jobs: append([]string{}, jobs[name]...)})
	}
	return out, nil
}

// triggers describes in words what starts a job.
func (s *Setup) triggers(j *config.Job) []string {
	var out []string
	schedules, err := s.Config.Schedules(j)
	if err != nil {
		return []string{err.Error()}
	}

	for _, sch := range schedules {
		out = append(out, sch.Describe())
	}
	if j.RunOnStart {
		out = append(out, "at each start")
	}
	if j.Watch != nil {
		out = append(out, watchTrigger(j))
	}
	if j.Webhook != nil {
		out = append(out, "by a request to "+j.Webhook.Path)
	}
	for _, f := range j.Follows {
		out = append(out, fmt.Sprintf("after %s (%s)", f.Job, outcomesText(f.On)))
	}
	if len(out) == 0 {
		out = append(out, "manually: rouse run "+string(j.Name))
	}
	return out
}

// Known implements web.Backend.
func (d *Daemon) Known(job, agent string) error { return d.Current().known(job, agent) }

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
func (d *Daemon) checkFlaws(ctx context.Context, s *Setup) []api.Check {
	last, err := d.ledger.LastRuns(ctx)
	wakes, readErr := d.ledger.Wakes(ctx)
	if err := errors.Join(err, readErr); err != nil {
		return []api.Check{undone("work", err)}
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
	for _, w := range wakes {
		for _, flaw := range d.viewFlaws(ctx, w.Agent, w.ContextViews, "rouse wake "+w.Agent) {
			found = append(found, fmt.Sprintf("the planned wake of %s: %s", w.Agent, flaw))
		}
	}
	if len(found) == 0 {
		return nil
	}
	return []api.Check{failed("work", shorten(found), "see each message; the runs start in any case")}
}
