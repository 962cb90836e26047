package daemon

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"rouse/agent"
	"rouse/agent/model/playbook"
	"rouse/agent/tool"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/scheduler/schedule"
	"rouse/watcher"
)

// newWatch is a job's watch in the terms of the watcher.
func newWatch(j *config.Job, p agent.Plan) watcher.Watch {
	settle := map[string]time.Duration{"fast": 200 * time.Millisecond, "": time.Second, "balanced": time.Second, "patient": 3 * time.Second}
	w := j.Watch
	return watcher.Watch{
		Collect: newCollect(j, p.Zone),
		Job:     string(j.Name), Agent: j.Agent, Path: string(w.Path), Include: w.Include, Exclude: w.Exclude, Recursive: w.Recursive,
		FollowSymlinks: w.FollowSymlinks, Mode: w.Mode, MaxWait: time.Duration(w.MaxWait), MaxFiles: w.MaxFiles,
		Settle: settle[w.Responsiveness], Existing: w.Existing,
		ExactCase: w.Case == "exact", TakeOpen: w.OpenFiles == "take", Definition: p.Fingerprint(string(j.Name)), OwnFolder: ownFolder(j, p),
		OnSuccess: watcher.After(w.OnSuccess), OnFailure: watcher.After(w.OnFailure), Boundary: p.Boundary,
	}
}

// newCollect returns the handover times of a job's watch.
func newCollect(j *config.Job, zone *time.Location) watcher.Collect {
	c := j.Watch.Collect
	if c == nil {
		return watcher.Collect{}
	}
	if own, err := time.LoadLocation(j.Timezone); err == nil && j.Timezone != "" {
		zone = own
	}
	zone = cmp.Or(zone, time.UTC)
	when := c.When()
	if c.Every > 0 {
		return watcher.Collect{When: when, Next: func(after time.Time) time.Time { return after.Add(time.Duration(c.Every)).In(zone) }}
	}
	at, _ := time.Parse("15:04", c.Until) // checked with the configuration
	return watcher.Collect{When: when + " (" + zone.String() + ")", Next: func(after time.Time) time.Time {
		return schedule.NextTimeOfDay(after, at.Hour(), at.Minute(), 0, zone).In(zone)
	}}
}

// handovers returns the next handovers of collecting watches, of one job or of all.
func (d *Daemon) handovers(ctx context.Context, job string, now time.Time) ([]api.Occurrence, error) {
	states, err := d.ledger.WatchStates(ctx)
	if err != nil {
		return nil, err
	}
	known := d.watches(ctx)
	var out []api.Occurrence
	for _, w := range d.Current().plan.watches {
		if w.Collect.When == "" || job != "" && job != w.Job {
			continue
		}
		at := w.NextHandover(states[w.Job], now)
		o := api.Occurrence{Job: w.Job, Agent: w.Agent, Source: string(domain.TriggerWatch), Nominal: api.At(at), Actual: api.At(latest(at, now)), Decision: domain.DecisionRun, Reason: "files are collected " + w.Collect.When}
		if st, ok := known[w.Job]; ok {
			o.Reason += fmt.Sprintf(", %d so far", st.Waiting)
		}
		out = append(out, o)
	}
	return out, nil
}

// collectNotes describes the next handover of a job, and whether there were files at the last one.
func (d *Daemon) collectNotes(ctx context.Context, job string, now time.Time, zone *time.Location) []string {
	coming, err := d.handovers(ctx, job, now)
	if err != nil || len(coming) == 0 {
		return nil
	}
	out := []string{fmt.Sprintf("%s; files that arrive before %s go to one run", coming[0].Reason, api.LocalTime(coming[0].Nominal.Time, zone))}
	if st, known, err := d.ledger.WatchState(ctx, job); err == nil && known && st.Run == 0 && st.Collected.After(st.Since) {
		out = append(out, fmt.Sprintf("at %s there were no files, so there was no run", api.LocalTime(st.Collected, zone)))
	}
	return out
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// ownFolder is the workdir of a job's agent, in which the agent may read hard links too.
func ownFolder(j *config.Job, p agent.Plan) string {
	folders := tool.WithResolvedLinks([]string{p.Agents[j.Agent].Workdir})
	return folders[len(folders)-1]
}

// watched is what the runs of a job know about its watch.
func watched(j *config.Job) agent.Watched {
	w := j.Watch
	if w == nil {
		return agent.Watched{}
	}
	// A followed link can lead the watch into folders below its own.
	return agent.Watched{Folder: string(w.Path), Recursive: w.Recursive || w.FollowSymlinks, Batch: w.Mode == watcher.ModeBatch, MovesTo: w.MovedTo(), Parameters: w.Parameters}
}

// watches is the state of each watch, by job; empty without a daemon.
func (d *Daemon) watches(ctx context.Context) map[string]api.Watch {
	out := map[string]api.Watch{}
	if d.watcher == nil {
		return out
	}

	for _, st := range d.watcher.Status(ctx) {
		out[st.Job] = newWatchState(st)
	}
	return out
}

// maxWaits is how many files that wait are told of a watch.
const maxWaits = 100

func newWatchState(st watcher.Status) api.Watch {
	w := api.Watch{Path: st.Path, Mode: st.Mode, State: string(st.State), Waiting: st.Waiting, Round: st.Round, Handover: api.At(st.Handover),
		Rescanned: api.At(st.LastScan), Degraded: st.Degraded, Problem: st.Problem}
	for _, wait := range st.Waits[:min(len(st.Waits), maxWaits)] {
		one := api.WatchWait{Path: wait.Path, Why: wait.Why, Since: api.At(wait.Since)}
		if wait.Run != 0 {
			one.Run = strconv.FormatInt(wait.Run, 10)
		}
		w.Waits = append(w.Waits, one)
	}
	return w
}

// watchOf is the watch of a job, nil when it has none.
func watchOf(j *config.Job, known map[string]api.Watch) *api.Watch {
	if j.Watch == nil {
		return nil
	}
	if w, ok := known[string(j.Name)]; ok {
		return &w
	}
	// Without a daemon the configuration is all that is known.
	return &api.Watch{Path: string(j.Watch.Path), Mode: j.Watch.Mode}
}

// watchTrigger describes the files or changes that a watch starts runs for.
func watchTrigger(j *config.Job) string {
	w := j.Watch
	what := cmp.Or(strings.Join(w.Include, ", "), "files")
	in := " in " + string(w.Path)
	switch {
	case w.Mode == watcher.ModeBatch && w.Collect != nil:
		return what + in + ", collected " + w.Collect.When()
	case w.Mode == watcher.ModeBatch:
		return "batches of " + what + in
	case w.Mode == watcher.ModeConverge:
		return "changes of " + what + in
	}
	return what + in
}

// watchProblem joins the problems of a watch. It returns "" if there are none.
func watchProblem(w api.Watch) string {
	if w.Problem == "" || w.Degraded == "" {
		return w.Problem + w.Degraded
	}
	return w.Problem + "; " + w.Degraded
}

// expandDestination expands one part of the destination template for the file of a run.
func (d *Daemon) expandDestination(ctx context.Context, template string, c ledger.ClaimStatus) (string, error) {
	if !strings.Contains(template, "{{") {
		return template, nil
	}
	run, err := d.ledger.Run(ctx, c.Run)
	if err != nil {
		return "", err
	}
	path := filepath.FromSlash(c.Path)
	data, err := d.Current().plan.Plan.Jobs[c.Job].DestinationData(run, ledger.File{Path: path, Name: filepath.Base(path), Size: c.Size, Hash: c.Hash, ModTime: c.ModTime})
	if err != nil {
		return "", err
	}
	return playbook.Expand("move", template, data)
}
