package daemon

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/plan"
	"rouse/cmd/internal/secret"
	"rouse/cmd/internal/web"
	"rouse/cmd/internal/why"
	"rouse/internal/ledger"
)

// Jobs implements web.Backend.
func (d *Daemon) Jobs(ctx context.Context) ([]api.Job, error) {
	jobs, _, err := d.FirstJobs(ctx, math.MaxInt)
	return jobs, err
}

// FirstJobs returns the first n jobs, and the number of all: each job takes a while.
func (d *Daemon) FirstJobs(ctx context.Context, n int) (_ []api.Job, all int, _ error) {
	now := d.Current()
	if err := now.Usable(); err != nil {
		return nil, 0, err
	}

	last, err := d.ledger.LastRuns(ctx)
	if err != nil {
		return nil, 0, err
	}

	// Everything that is asked for all jobs at once is read before the loop.
	watches := d.Watches(ctx)
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

	handovers, err := d.Handovers(ctx, "", at)
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
		job := api.Job{Name: string(j.Name), Agent: j.Agent, Enabled: config.On(j.Enabled), Triggers: now.Triggers(j), Scheduled: j.Scheduled(), Watch: why.WatchOf(j, watches), Incidents: append([]api.Incident{}, incidents[string(j.Name)]...)}
		by := d.Obstacles(ctx, now, i)
		job.Obstacles, job.Blocked = why.NewObstacles(by), len(by) > 0
		job.Problem = ledger.ObstaclesText(by)
		if w := job.Watch; w != nil && job.Problem == "" {
			job.Problem = why.WatchProblem(*w)
		}

		job.Next = api.At(d.scheduler.NextStart(string(j.Name), at))
		if t, ok := handedOver[job.Name]; ok && (job.Next.IsZero() || t.Before(job.Next.Time)) {
			job.Next = t
		}
		if p, ok := ledger.Paused(pauses, string(j.Name), j.Agent, at); ok {
			job.Paused, job.PausedUntil, job.PausedWhy = true, api.At(p.Until), why.PauseReason(p)
		}

		if r, ok := last[string(j.Name)]; ok {
			job.LastRun, job.LastState, job.LastOutcome, job.LastAt = fmt.Sprint(r.ID), r.State, r.Outcome, api.At(r.QueuedAt)
		}

		if job.Problem == "" {
			job.Problem = strings.Join(d.Flaws(ctx, now, j, job.LastRun != "", at), "; ")
		}

		out = append(out, job)
	}

	return out, len(now.Config.Jobs), nil
}

// Agents implements web.Backend.
func (d *Daemon) Agents(context.Context) ([]api.Agent, error) {
	now := d.Current()
	if err := now.Usable(); err != nil {
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

// Known implements web.Backend.
func (d *Daemon) Known(job, agent string) error { return d.Current().Known(job, agent) }

// askSecretsEvery is how often the keyring is asked for secrets that are missing: nothing tells that it was opened.
const askSecretsEvery = 30 * time.Second

// restoreObstacles takes up what was known when the last process ended.
func (d *Daemon) restoreObstacles(ctx context.Context) error {
	known, err := d.ledger.OpenObstacles(ctx, "model")
	if err != nil {
		return err
	}

	why := map[string]string{}
	for _, o := range known {
		why[strings.TrimPrefix(o.Source, "model/")] = o.Text
	}
	d.runner.RestoreRefusals(why)
	return nil
}

// watchObstacles checks obstacles again and again, so that runs start when they are gone.
func (d *Daemon) watchObstacles(ctx context.Context, reconsider func()) error {
	var asked time.Time
	var looked *plan.Setup
	for {
		if now := d.Current(); now != looked {
			looked = now
			d.lookAhead(ctx, now)
		}
		cleared, rest := d.runner.LookAgain(ctx)
		if cleared {
			reconsider()
		}
		if time.Since(asked) >= askSecretsEvery {
			asked = time.Now()
			d.reloadForSecrets()
		}

		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rest):
		}
	}
}

// lookAhead finds out what takes a program, so that requests that start none can tell of it.
func (d *Daemon) lookAhead(ctx context.Context, s *plan.Setup) {
	d.TryConfinement(ctx)
	for i := range s.Config.Jobs {
		if ctx.Err() != nil {
			return
		}
		d.Obstacles(ctx, s, i)
	}
}

// reloadForSecrets has the configuration read again when a secret that it lacks can be had.
func (d *Daemon) reloadForSecrets() {
	held := d.Current().Config.Held()
	if len(held) == 0 {
		return
	}

	// A new store, because one remembers a keyring that did not answer.
	store, err := secret.New(secret.Options{Home: d.home.Dir})
	if err != nil {
		return // said where the configuration is read
	}
	for _, h := range held {
		if _, _, err := store.Get(h.Name); err == nil {
			d.ReloadSoon()
			return
		}
	}
}
