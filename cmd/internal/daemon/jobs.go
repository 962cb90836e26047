package daemon

import (
	"context"
	"fmt"
	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/watcher"
	"strings"
	"time"
)

// Jobs implements web.Jobs.
func (d *Daemon) Jobs(ctx context.Context) ([]api.Job, error) {
	now := d.Current()
	if err := now.usable(); err != nil {
		return nil, err
	}

	last, err := d.ledger.LastRuns(ctx)
	if err != nil {
		return nil, err
	}

	watches := d.watches(ctx)
	at := time.Now()
	pauses, err := d.ledger.Pauses(ctx, at)
	if err != nil {
		return nil, err
	}

	out := []api.Job{}
	for i := range now.Config.Jobs {
		j := &now.Config.Jobs[i]
		job := api.Job{Name: string(j.Name), Agent: j.Agent, Enabled: config.On(j.Enabled), Triggers: now.triggers(j), Watch: watchOf(j, watches)}
		if w := job.Watch; w != nil {
			job.Problem = wrongWith(w.Problem, w.Degraded)
		}

		job.Next = api.At(d.scheduler.NextStart(string(j.Name), at))
		if p, ok := ledger.Paused(pauses, string(j.Name), j.Agent, at); ok {
			job.Paused, job.PausedUntil, job.PausedWhy = true, api.At(p.Until), pausedWhy(p)
		}

		if r, ok := last[string(j.Name)]; ok {
			job.LastRun, job.LastState, job.LastOutcome, job.LastAt = fmt.Sprint(r.ID), r.State, r.Outcome, api.At(r.QueuedAt)
		}

		out = append(out, job)
	}

	return out, nil
}

// triggers says in words what starts a job.
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
		out = append(out, watchTrigger(j.Watch.Mode, j.Watch.Include, string(j.Watch.Path)))
	}

	if len(out) == 0 {
		out = append(out, "manually: rouse run "+string(j.Name))
	}

	return out
}

// watches are what the watches are doing, by job; nothing is known where no daemon runs.
func (d *Daemon) watches(ctx context.Context) map[string]api.Watch {
	out := map[string]api.Watch{}
	if d.watcher == nil {
		return out
	}

	for _, st := range d.watcher.Status(ctx) {
		out[st.Job] = api.Watch{Path: st.Path, Mode: st.Mode, State: string(st.State), Waiting: st.Waiting, Round: st.Round,
			Rescanned: api.At(st.LastScan), Degraded: st.Degraded, Problem: st.Problem}
	}
	return out
}

// watchOf is the watch of a job, nil when it has none.
func watchOf(j *config.Job, known map[string]api.Watch) *api.Watch {
	if j.Watch == nil {
		return nil
	}
	if w, ok := known[string(j.Name)]; ok {
		return &w
	}
	return &api.Watch{Path: string(j.Watch.Path), Mode: j.Watch.Mode}
}

// watchTrigger says in words what a watch makes runs of.
func watchTrigger(mode string, include []string, path string) string {
	what := "files"
	if len(include) > 0 {
		what = strings.Join(include, ", ")
	}

	switch mode {
	case watcher.ModeBatch:
		what = "batches of " + what
	case watcher.ModeConverge:
		what = "changes of " + what
	}
	return what + " in " + path
}

// wrongWith joins what is wrong with a watch, "" when nothing is.
func wrongWith(problem, degraded string) string {
	if problem == "" || degraded == "" {
		return problem + degraded
	}
	return problem + "; " + degraded
}

// Known implements web.Jobs.
func (d *Daemon) Known(job, agent string) error { return d.Current().known(job, agent) }
