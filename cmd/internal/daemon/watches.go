package daemon

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"rouse/agent"
	"rouse/agent/model/playbook"
	"rouse/agent/tool"
	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/watcher"
)

// newWatch is a job's watch in the terms of the watcher.
func newWatch(j *config.Job, p agent.Plan) watcher.Watch {
	settle := map[string]time.Duration{"fast": 200 * time.Millisecond, "": time.Second, "balanced": time.Second, "patient": 3 * time.Second}
	w := j.Watch
	return watcher.Watch{
		Job: string(j.Name), Agent: j.Agent, Path: string(w.Path), Include: w.Include, Exclude: w.Exclude, Recursive: w.Recursive,
		FollowSymlinks: w.FollowSymlinks, Mode: w.Mode, MaxWait: time.Duration(w.MaxWait), MaxFiles: w.MaxFiles,
		Settle: settle[w.Responsiveness], Existing: w.Existing,
		ExactCase: w.Case == "exact", TakeOpen: w.OpenFiles == "take", Definition: p.Fingerprint(string(j.Name)), OwnFolder: ownFolder(j, p),
		OnSuccess: watcher.After(w.OnSuccess), OnFailure: watcher.After(w.OnFailure), Boundary: p.Boundary,
	}
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
		out[st.Job] = api.Watch{Path: st.Path, Mode: st.Mode, State: string(st.State), Waiting: st.Waiting, Round: st.Round,
			Rescanned: api.At(st.LastScan), Degraded: st.Degraded, Problem: st.Problem, Waits: watchWaits(st.Waits)}
	}
	return out
}

// maxWaits is how many files that wait are told of a watch.
const maxWaits = 100

func watchWaits(waits []watcher.Wait) []api.WatchWait {
	var out []api.WatchWait
	for _, w := range waits[:min(len(waits), maxWaits)] {
		one := api.WatchWait{Path: w.Path, Why: w.Why, Since: api.At(w.Since)}
		if w.Run != 0 {
			one.Run = strconv.FormatInt(w.Run, 10)
		}
		out = append(out, one)
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

// expandDestination fills a part of the template that names where the file of a run goes.
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
