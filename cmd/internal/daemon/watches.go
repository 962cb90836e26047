package daemon

import (
	"context"
	"strings"
	"time"

	"rouse/agent"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/internal/nofollow"
	"rouse/watcher"
)

// newWatch is a job's watch in the terms of the watcher.
func newWatch(j *config.Job, b nofollow.Boundary) watcher.Watch {
	settle := map[string]time.Duration{"fast": 200 * time.Millisecond, "": time.Second, "balanced": time.Second, "patient": 3 * time.Second}
	w := j.Watch
	return watcher.Watch{
		Job: string(j.Name), Agent: j.Agent, Path: string(w.Path), Include: w.Include, Exclude: w.Exclude, Recursive: w.Recursive,
		FollowSymlinks: w.FollowSymlinks, Mode: w.Mode, MaxWait: time.Duration(w.MaxWait), MaxFiles: w.MaxFiles,
		Settle: settle[w.Responsiveness], Existing: w.Existing,
		OnSuccess: watcher.After(w.OnSuccess), OnFailure: watcher.After(w.OnFailure), Boundary: b,
	}
}

// watched is what the runs of a job know about its watch.
func watched(j *config.Job) agent.Watched {
	w := j.Watch
	if w == nil {
		return agent.Watched{}
	}
	// A followed link can lead the watch into folders below its own.
	return agent.Watched{Folder: string(w.Path), Recursive: w.Recursive || w.FollowSymlinks, Batch: w.Mode == watcher.ModeBatch, MovesTo: w.MovedTo()}
}

// watches is the state of each watch, by job; empty without a daemon.
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
	// Without a daemon the configuration is all that is known.
	return &api.Watch{Path: string(j.Watch.Path), Mode: j.Watch.Mode}
}

// watchTrigger describes in words what a watch starts runs for.
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

// watchProblem joins what is wrong with a watch, "" if nothing is.
func watchProblem(problem, degraded string) string {
	if problem == "" || degraded == "" {
		return problem + degraded
	}
	return problem + "; " + degraded
}
