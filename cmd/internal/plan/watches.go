package plan

import (
	"cmp"
	"strings"
	"time"

	"rouse/agent"
	"rouse/agent/permit"
	agentplan "rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/cmd/internal/config"
	"rouse/scheduler/schedule"
	"rouse/watcher"
	"rouse/watcher/after"
	"rouse/watcher/match"
)

// WatchOf returns the watch of a job. For a job without a watch, it returns one that accepts single
// files.
func (p *Plan) WatchOf(j *config.Job) watcher.Watch {
	if j.Watch != nil {
		return newWatch(j, p.Runner)
	}
	return watcher.Watch{Job: string(j.Name), Agent: j.Agent, Boundary: p.Runner.Boundary, Definition: permit.Fingerprint(p.Runner, agent.Specs(), string(j.Name)), OwnFolder: ownFolder(j, p.Runner)}
}

// newWatch translates a job's watch for the watcher.
func newWatch(j *config.Job, p agentplan.Plan) watcher.Watch {
	settle := map[string]time.Duration{"fast": 200 * time.Millisecond, "": time.Second, "balanced": time.Second, "patient": 3 * time.Second}
	w := j.Watch
	return watcher.Watch{
		Collect: newCollect(j, p.Zone),
		Job:     string(j.Name), Agent: j.Agent, Path: string(w.Path), Recursive: w.Recursive,
		Filter:         match.Filter{Include: w.Include, Exclude: w.Exclude, ExactCase: w.Case == "exact"},
		FollowSymlinks: w.FollowSymlinks, Mode: w.Mode, MaxWait: time.Duration(w.MaxWait), MaxFiles: w.MaxFiles,
		Settle: settle[w.Responsiveness], Existing: w.Existing,
		TakeOpen: w.OpenFiles == "take", Definition: permit.Fingerprint(p, agent.Specs(), string(j.Name)), OwnFolder: ownFolder(j, p),
		OnSuccess: after.Rule(w.OnSuccess), OnFailure: after.Rule(w.OnFailure), Boundary: p.Boundary,
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
	at, _ := time.Parse("15:04", c.Until) // checked when the configuration was loaded
	return watcher.Collect{When: when + " (" + zone.String() + ")", Next: func(after time.Time) time.Time {
		return schedule.NextTimeOfDay(after, at.Hour(), at.Minute(), 0, zone).In(zone)
	}}
}

// ownFolder returns the workdir of a job's agent, in which the agent may also read hard links.
func ownFolder(j *config.Job, p agentplan.Plan) string {
	folders := tool.WithResolvedLinks([]string{p.Agents[j.Agent].Workdir})
	return folders[len(folders)-1]
}

// watched returns the properties of a watch that its runs need.
func watched(j *config.Job) agentplan.Watched {
	w := j.Watch
	if w == nil {
		return agentplan.Watched{}
	}
	// A followed link can lead the watch into folders outside of its own.
	return agentplan.Watched{Folder: string(w.Path), Recursive: w.Recursive || w.FollowSymlinks, Batch: w.Mode == watcher.ModeBatch, MovesTo: w.MovedTo(), Parameters: w.Parameters}
}

// watchTrigger describes the files or changes for which a watch starts runs.
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
