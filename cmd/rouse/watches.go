package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/web"
	"rouse/watcher"
)

// watches are what the watches are doing, by job; nothing is known where no daemon runs.
func (d *daemon) watches(ctx context.Context) map[string]web.Watch {
	out := map[string]web.Watch{}
	if d.watcher == nil {
		return out
	}
	for _, st := range d.watcher.Status(ctx) {
		out[st.Job] = web.Watch{Path: st.Path, Mode: st.Mode, State: string(st.State), Waiting: st.Waiting, Round: st.Round,
			Rescanned: web.Time{Time: st.Rescanned}, Degraded: st.Degraded, Problem: st.Problem}
	}
	return out
}

// watchOf is the watch of a job, nil when it has none.
func watchOf(j *config.Job, known map[string]web.Watch) *web.Watch {
	if j.Watch == nil {
		return nil
	}
	if w, ok := known[string(j.Name)]; ok {
		return &w
	}
	return &web.Watch{Path: string(j.Watch.Path), Mode: j.Watch.Mode}
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

// watchState says in words what a watch is doing.
func watchState(w web.Watch) string {
	text := w.State
	if w.Round > 0 {
		text += fmt.Sprintf(", run %d of the folder", w.Round)
	}
	if w.Waiting > 0 {
		text += fmt.Sprintf(", %d waiting", w.Waiting)
	}
	return text
}

// wrongWith joins what is wrong with a watch, "" when nothing is.
func wrongWith(problem, degraded string) string {
	if problem == "" || degraded == "" {
		return problem + degraded
	}
	return problem + "; " + degraded
}

func (d *daemon) checkWatches(ctx context.Context) web.Check {
	c := web.Check{Name: "watches", OK: true, Detail: "no folder is watched"}
	if d.watcher == nil {
		c.Detail = "no daemon runs, so no folder is watched"
		return c
	}
	var fine, bad []string
	used := 0
	for _, st := range d.watcher.Status(ctx) {
		text := fmt.Sprintf("%s: %s (%s, %s", st.Job, st.Path, st.Mode, watchState(web.Watch{State: string(st.State), Waiting: st.Waiting, Round: st.Round}))
		used += st.Folders
		if !st.Rescanned.IsZero() {
			text += ", scanned " + st.Rescanned.Local().Format(time.TimeOnly)
		}
		text += ")"
		switch why := wrongWith(st.Problem, st.Degraded); {
		case why != "":
			bad = append(bad, text+": "+why)
		default:
			fine = append(fine, text)
		}
	}
	switch {
	case len(bad) > 0:
		c.OK, c.Detail, c.Remedy = false, strings.Join(bad, "; "), "see the message; the folder is taken up as soon as it can be"
	case len(fine) > 0:
		c.Detail = strings.Join(fine, "; ")
	}
	if limit, err := os.ReadFile("/proc/sys/fs/inotify/max_user_watches"); err == nil && runtime.GOOS == "linux" {
		c.Detail += fmt.Sprintf(" (%d folders in all; the system allows %s to all programs of a user)", used, strings.TrimSpace(string(limit)))
	}
	return c
}

func converges(j *config.Job) bool {
	return j.Watch != nil && j.Watch.Mode == watcher.ModeConverge
}

// hand does by hand what the watch of a job does: it takes a file as if it had been dropped,
// or the folder that the job is about as if it had changed.
func (d *daemon) hand(ctx context.Context, j *config.Job, f web.Fire) (int64, error) {
	switch {
	case len(f.Input) > 0:
		return 0, &web.Error{Status: 400, Message: fmt.Sprintf("a run of job %s that takes a file or a folder takes no input", j.Name), Usage: true}
	case f.File == "":
		return d.trigger(ctx, j)
	case converges(j):
		return 0, &web.Error{Status: 400, Message: fmt.Sprintf("job %s takes its folder as a whole, not a file (mode: converge); start it with: rouse run %s", j.Name, j.Name), Usage: true}
	}
	w := watcher.Watch{Job: string(j.Name), Agent: j.Agent}
	if j.Watch != nil {
		w = newWatch(j)
	}
	a, err := watcher.Offer(ctx, d.ledger, w, f.File)
	if err != nil {
		return 0, &web.Error{Status: 400, Message: err.Error()}
	}
	if a.Blocked {
		state := string(a.Outcome)
		if state == "" {
			state = "not finished yet"
		}
		return 0, &web.Error{Status: 409, Message: fmt.Sprintf("these bytes at this path were taken before, by run %d (%s); see: rouse show %d", a.Run, state, a.Run)}
	}
	return a.Run, nil
}

// trigger starts the run of a folder.
func (d *daemon) trigger(ctx context.Context, j *config.Job) (int64, error) {
	var a ledger.Accepted
	var err error
	if d.watcher != nil {
		a, err = d.watcher.Trigger(ctx, string(j.Name))
	} else {
		a, err = watcher.Trigger(ctx, d.ledger, d.current().plan.watches, string(j.Name))
	}
	switch {
	case errors.Is(err, watcher.ErrBusy) && d.watcher == nil:
		return 0, &web.Error{Status: 409, Message: err.Error() + ", which takes a daemon: rouse serve"}
	case errors.Is(err, watcher.ErrBusy):
		return 0, &web.Error{Status: 409, Message: err.Error()}
	case err != nil:
		return 0, &web.Error{Status: 400, Message: err.Error()}
	}
	return a.Run, nil
}
