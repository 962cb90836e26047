package control

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/yaml"
	"rouse/cmd/internal/why"
	"rouse/internal/ledger/incident"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/record"
)

// Jobs returns all jobs with their state.
func (x *Catalog) Jobs(ctx context.Context) ([]api.Job, error) {
	jobs, _, err := x.FirstJobs(ctx, math.MaxInt)
	return jobs, err
}

// FirstJobs returns the first n jobs and the number of all jobs. Listing fewer jobs is faster.
func (x *Catalog) FirstJobs(ctx context.Context, n int) (_ []api.Job, all int, _ error) {
	now := x.Setup()
	if err := now.Usable(); err != nil {
		return nil, 0, err
	}

	last, err := x.Ledger.Runs.Last(ctx)
	if err != nil {
		return nil, 0, err
	}

	// Read the data of all jobs before the loop.
	watches := x.Explainer.Watches(ctx)
	at := x.Ledger.Now()
	pauses, err := x.Ledger.Pauses.List(ctx, at)
	if err != nil {
		return nil, 0, err
	}

	open, err := x.Ledger.Incidents.List(ctx, incident.Filter{Limit: maxOpenIncidents})
	if err != nil {
		return nil, 0, err
	}
	incidents := map[string][]api.Incident{}
	for _, i := range open {
		incidents[i.Job] = append(incidents[i.Job], api.NewIncident(i))
	}

	handovers, err := x.Explainer.Handovers(ctx, "", at)
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
		by := x.Explainer.Obstacles(ctx, now, i)
		job.Obstacles, job.Blocked = why.NewObstacles(by), len(by) > 0
		job.Problem = record.ObstaclesText(by)
		if w := job.Watch; w != nil && job.Problem == "" {
			job.Problem = why.WatchProblem(*w)
		}

		job.Next = api.At(x.Scheduler.NextStart(string(j.Name), at))
		if t, ok := handedOver[job.Name]; ok && (job.Next.IsZero() || t.Before(job.Next.Time)) {
			job.Next = t
		}
		if p, ok := pause.Paused(pauses, string(j.Name), j.Agent, at); ok {
			job.Paused, job.PausedUntil, job.PausedWhy = true, api.At(p.Until), why.PauseReason(p)
		}

		if r, ok := last[string(j.Name)]; ok {
			job.LastRun, job.LastState, job.LastOutcome, job.LastAt = fmt.Sprint(r.ID), r.State, r.Outcome, api.At(r.QueuedAt)
		}

		if job.Problem == "" {
			job.Problem = strings.Join(x.Explainer.Flaws(ctx, now, j, job.LastRun != "", at), "; ")
		}

		out = append(out, job)
	}

	return out, len(now.Config.Jobs), nil
}

// Agents returns all agents.
func (x *Catalog) Agents(context.Context) ([]api.Agent, error) {
	now := x.Setup()
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

// Known returns an error if the job or agent is not configured, with the nearest name as a
// suggestion.
func (x *Catalog) Known(job, agent string) error { return x.Setup().Known(job, agent) }

// Zone returns the time zone of the configuration.
func (x *Catalog) Zone() *time.Location { return x.Setup().Config.Zone() }

// AgentNames returns the names of all agents.
func (x *Catalog) AgentNames() []string { return x.Setup().AgentNames() }

// Channels returns the names of the notification channels.
func (x *Catalog) Channels() []string {
	return slices.Sorted(maps.Keys(x.Setup().Plan.Channels))
}

// Definition returns the current YAML of a job without secrets.
func (x *Catalog) Definition(job string) (api.Definition, error) {
	now := x.Setup()
	j := now.Job(job)
	if j == nil {
		return api.Definition{}, &api.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("the job %s is not configured", job)}
	}

	content, err := os.ReadFile(j.At.File)
	if err != nil {
		return api.Definition{}, fmt.Errorf("the configuration of the job %s cannot be read: %w", job, err)
	}
	masked, kept := yaml.Mask(now.Config, j.At.File, content, now.Plan.Runner.Secrets)
	shown := itemAt(string(masked), j.At.Line)
	if !kept {
		shown = "# [secret]: the secrets of this file cannot be masked where they are; see the job with: rouse config show"
	}
	return api.Definition{File: j.At.File, Line: j.At.Line, Text: shown}, nil
}

// itemAt returns the item of a YAML list that begins at a line, with the following lines of greater
// indentation.
func itemAt(content string, line int) string {
	lines := strings.Split(content, "\n")
	if line < 1 || line > len(lines) {
		return "" // the file has changed since it was loaded
	}

	indent := func(l string) int { return len(l) - len(strings.TrimLeft(l, " ")) }
	from, end := line-1, line
	for end < len(lines) && (strings.TrimSpace(lines[end]) == "" || indent(lines[end]) > indent(lines[from])) {
		end++
	}
	return strings.TrimRight(strings.Join(lines[from:end], "\n"), "\n ")
}

// OpenFile opens a regular file. It does not follow links in folders where agents or strangers can
// create links.
func (x *Catalog) OpenFile(path string) (io.ReadCloser, error) {
	return x.Setup().Plan.Runner.Boundary.Open(path)
}

// Notify sends a text to a channel immediately, and returns the name of the channel.
func (x *Catalog) Notify(ctx context.Context, channel, text string) (string, error) {
	if channel == "" {
		usual := x.usualChannels()
		if len(usual) == 0 {
			return "", &api.Error{Status: 502, Message: "no notification channel is configured, and there is no desktop session; add one to notifications"}
		}
		channel = usual[0]
	}

	if err := x.Notifier.Send(ctx, channel, "rouse", x.Runner.Plan.Redact(text)); err != nil {
		return "", &api.Error{Status: 502, Message: fmt.Sprintf("channel %s: %v", channel, err)}
	}
	return channel, nil
}

// usualChannels returns the channels for notices without a job or agent.
func (x *Catalog) usualChannels() []string {
	if usual := x.Setup().Config.DefaultChannels(); usual != nil || !x.DesktopExists() {
		return usual
	}
	return []string{config.DefaultChannel}
}

// maxOpenIncidents is the maximum number of open incidents to read.
const maxOpenIncidents = 1000
