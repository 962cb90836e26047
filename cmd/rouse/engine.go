package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"rouse/agentdb"
	"rouse/agentdb/ledger"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/notify"
	"rouse/cmd/internal/web"
	"rouse/watcher"
)

var _ web.Engine = (*daemon)(nil)

// Status implements web.Engine.
func (d *daemon) Status(ctx context.Context) (web.Status, error) {
	c, err := d.ledger.Counts(ctx)
	st := web.Status{PID: os.Getpid(), Version: version(), Home: d.home.dir, StartedAt: web.Time{Time: d.startedAt}, Ready: d.ready.Load(),
		Queued: c.Queued, Running: c.Running, Waiting: c.Waiting}
	if len(d.config.Files) > 0 {
		st.Config = d.config.Files[0]
	}
	return st, err
}

// usable says why the configuration cannot be worked with.
func (d *daemon) usable() error {
	if d.problem == nil {
		return nil
	}
	return fmt.Errorf("the configuration cannot be used:\n%w", d.problem)
}

// Jobs implements web.Engine.
func (d *daemon) Jobs(ctx context.Context) ([]web.Job, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	last, err := d.ledger.LastRuns(ctx)
	if err != nil {
		return nil, err
	}
	problems := map[string]string{}
	if d.watcher != nil {
		for _, st := range d.watcher.Status(ctx) {
			problems[st.Job] = strings.TrimSpace(st.Problem + " " + st.Degraded)
		}
	}
	now := time.Now()
	out := []web.Job{}
	for i := range d.config.Jobs {
		j := &d.config.Jobs[i]
		job := web.Job{Name: string(j.Name), Agent: j.Agent, Enabled: config.On(j.Enabled), Triggers: d.triggers(j), Problem: problems[string(j.Name)]}
		if next := d.scheduler.Next(string(j.Name), 1, now); len(next) > 0 {
			job.Next = web.Time{Time: next[0].Actual}
		}
		if r, ok := last[string(j.Name)]; ok {
			job.LastRun, job.LastState, job.LastOutcome, job.LastAt = fmt.Sprint(r.ID), string(r.State), string(r.Outcome), web.Time{Time: r.QueuedAt}
		}
		out = append(out, job)
	}
	return out, nil
}

// triggers says in words what starts a job.
func (d *daemon) triggers(j *config.Job) []string {
	var out []string
	schedules, err := d.config.Schedules(j)
	if err != nil {
		return []string{err.Error()}
	}
	for _, s := range schedules {
		out = append(out, s.Describe())
	}
	if j.RunOnStart {
		out = append(out, "at each start")
	}
	if w := j.Watch; w != nil {
		text := "files in " + string(w.Path)
		if len(w.Include) > 0 {
			text = strings.Join(w.Include, ", ") + " in " + string(w.Path)
		}
		out = append(out, text)
	}
	if len(out) == 0 {
		out = append(out, "by hand: rouse run "+string(j.Name))
	}
	return out
}

// Next implements web.Engine.
func (d *daemon) Next(_ context.Context, job string, n int) ([]web.Occurrence, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	out := []web.Occurrence{}
	for _, u := range d.scheduler.Next(job, n, time.Now()) {
		o := web.Occurrence{Job: u.Job, Source: u.Source, Nominal: web.Time{Time: u.Nominal}, Actual: web.Time{Time: u.Actual}, Decision: ledger.DecisionRun}
		if late := u.Actual.Sub(u.Nominal); late > 0 {
			o.Reason = fmt.Sprintf("jitter of %s", late)
		}
		out = append(out, o)
	}
	return out, nil
}

// Known implements web.Engine.
func (d *daemon) Known(job, agent string) error {
	if job != "" && !slices.Contains(d.jobNames(), job) {
		return &web.Error{Status: 404, Message: config.Nearest("job", job, d.jobNames()), Usage: true}
	}
	if agent != "" && !slices.Contains(d.agentNames(), agent) {
		return &web.Error{Status: 404, Message: config.Nearest("agent", agent, d.agentNames()), Usage: true}
	}
	return nil
}

func (d *daemon) jobNames() []string {
	var out []string
	for _, j := range d.config.Jobs {
		out = append(out, string(j.Name))
	}
	return out
}

func (d *daemon) agentNames() []string {
	var out []string
	for _, a := range d.config.Agents {
		out = append(out, string(a.Name))
	}
	return out
}

// Fire implements web.Engine.
func (d *daemon) Fire(ctx context.Context, f web.Fire) (int64, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	if err := d.Known(f.Job, f.Agent); err != nil {
		return 0, err
	}
	req := ledger.Request{Job: f.Job, Agent: f.Agent, Trigger: ledger.TriggerManual, Detail: ledger.Detail{Input: f.Input, Prompt: f.Prompt, Tool: f.Tool, Args: f.Args}}
	if f.Job != "" {
		j := d.config.Jobs[slices.Index(d.jobNames(), f.Job)]
		if !config.On(j.Enabled) {
			return 0, &web.Error{Status: 409, Message: fmt.Sprintf("the job %s is disabled (enabled: false at %s)", f.Job, j.At)}
		}
		req.Agent = j.Agent
		if f.File != "" {
			return d.offer(ctx, &j, f.File)
		}
	} else if f.Tool != "" && !slices.Contains(toolNames(), f.Tool) {
		return 0, &web.Error{Status: 404, Message: config.Nearest("tool", f.Tool, toolNames()), Usage: true}
	}
	// With no daemon the run is executed at once, so a run that could only wait is refused.
	accepted, err := d.ledger.Enqueue(ctx, req)
	if err != nil {
		return 0, err
	}
	return accepted[0].Run, nil
}

// offer takes a file as if it had been dropped into the job's folder.
func (d *daemon) offer(ctx context.Context, j *config.Job, path string) (int64, error) {
	w := watcher.Watch{Job: string(j.Name), Agent: j.Agent}
	if j.Watch != nil {
		w = newWatch(j)
	}
	a, err := watcher.Offer(ctx, d.ledger, w, path)
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

// Database implements web.Engine.
func (d *daemon) Database(ctx context.Context, agent string) (*agentdb.DB, func(), error) {
	if err := d.usable(); err != nil {
		return nil, nil, err
	}
	if err := d.Known("", agent); err != nil {
		return nil, nil, err
	}
	return d.databases.Get(ctx, agent)
}

// Notify implements web.Engine.
func (d *daemon) Notify(ctx context.Context, channel, text string) error {
	if err := d.notifier.Send(ctx, channel, "rouse", text); err != nil {
		return &web.Error{Status: 502, Message: fmt.Sprintf("channel %s: %v", channel, err)}
	}
	return nil
}

// Doctor implements web.Engine.
func (d *daemon) Doctor(ctx context.Context) ([]web.Check, error) {
	checks := []web.Check{d.checkConfig(), d.checkHome()}
	checks = append(checks, d.checkModels(), d.checkWatches(ctx))
	checks = append(checks, d.checkNotices(ctx)...)
	c, err := d.ledger.Counts(ctx)
	if err != nil {
		return nil, err
	}
	queue := web.Check{Name: "queue", OK: true, Detail: fmt.Sprintf("%d queued, %d running, %d waiting", c.Queued, c.Running, c.Waiting)}
	held, err := d.held(ctx)
	if err != nil {
		return nil, err
	}
	if held != "" {
		queue.OK, queue.Detail, queue.Remedy = false, queue.Detail+"; "+held, "see the reason; the runs start by themselves when it is gone"
	}
	return append(checks, queue), nil
}

// held says why queued runs do not start.
func (d *daemon) held(ctx context.Context) (string, error) {
	queued, err := d.ledger.Runs(ctx, ledger.Filter{State: ledger.StateQueued, Limit: 100})
	if err != nil {
		return "", err
	}
	for _, r := range queued {
		if why := d.runner.Hold(r); why != "" {
			return fmt.Sprintf("run %d of %s stays queued: %s", r.ID, r.Job, why), nil
		}
	}
	return "", nil
}

func (d *daemon) checkConfig() web.Check {
	c := web.Check{Name: "configuration", OK: d.problem == nil, Detail: fmt.Sprintf("%d jobs, %d agents, %s", len(d.config.Jobs), len(d.config.Agents), strings.Join(d.config.Files, ", "))}
	if d.problem != nil {
		c.Detail, c.Remedy = d.problem.Error(), "correct the file, and check it with: rouse config check"
	}
	return c
}

func (d *daemon) checkHome() web.Check {
	c := web.Check{Name: "home", OK: true, Detail: d.home.dir + " can be written"}
	probe := filepath.Join(d.home.dir, "doctor.tmp")
	err := errors.Join(os.WriteFile(probe, make([]byte, 1<<16), 0o600), os.Remove(probe))
	if err != nil {
		c.OK, c.Detail, c.Remedy = false, err.Error(), "free some space, or check the permissions of "+d.home.dir
	}
	return c
}

func (d *daemon) checkModels() web.Check {
	c := web.Check{Name: "models", OK: true}
	var names, lacking []string
	for _, m := range d.config.Models {
		names = append(names, fmt.Sprintf("%s (%s)", m.Name, m.Model))
	}
	c.Detail = strings.Join(names, ", ")
	for _, j := range d.config.Jobs {
		if j.Playbook == nil && len(d.config.Models) == 0 && config.On(j.Enabled) {
			lacking = append(lacking, string(j.Name))
		}
	}
	switch {
	case len(lacking) > 0:
		c.OK, c.Detail = false, "no model is configured, and these jobs need one: "+strings.Join(lacking, ", ")
		c.Remedy = "add one under models: in the configuration"
	case len(names) == 0:
		c.Detail = "none is configured, and no job needs one"
	}
	return c
}

func (d *daemon) checkWatches(ctx context.Context) web.Check {
	c := web.Check{Name: "watches", OK: true, Detail: "no folder is watched"}
	if d.watcher == nil {
		c.Detail = "no daemon runs, so no folder is watched"
		return c
	}
	var fine, bad []string
	for _, st := range d.watcher.Status(ctx) {
		switch {
		case st.Problem != "":
			bad = append(bad, st.Job+": "+st.Problem)
		case st.Degraded != "":
			bad = append(bad, st.Job+": "+st.Degraded)
		default:
			fine = append(fine, st.Path)
		}
	}
	if len(fine) > 0 {
		c.Detail = strings.Join(fine, ", ")
	}
	if runtime.GOOS == "linux" {
		if limit, err := os.ReadFile("/proc/sys/fs/inotify/max_user_watches"); err == nil {
			c.Detail += fmt.Sprintf(" (the system allows %s watches)", strings.TrimSpace(string(limit)))
		}
	}
	if len(bad) > 0 {
		c.OK, c.Detail, c.Remedy = false, strings.Join(bad, "; "), "see the message; the folder is taken up as soon as it can be"
	}
	return c
}

// checkNotices looks at each channel and at what waits in the outbox.
func (d *daemon) checkNotices(ctx context.Context) []web.Check {
	var out []web.Check
	for name, err := range d.notifier.Check(ctx) {
		c := web.Check{Name: "channel " + name, OK: true, Detail: "can be reached"}
		if err != nil {
			c.OK, c.Detail = false, err.Error()
			c.Remedy = "start rouse inside a desktop session, or take the channel out of notify: in the jobs"
			if !errors.Is(err, notify.ErrAway) {
				c.Remedy = "see the message"
			}
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b web.Check) int { return strings.Compare(a.Name, b.Name) })
	waiting, err := d.ledger.Undelivered(ctx, 100)
	switch {
	case err != nil:
		out = append(out, web.Check{Name: "outbox", Detail: err.Error()})
	case len(waiting) > 0:
		n := waiting[0]
		out = append(out, web.Check{Name: "outbox", Detail: fmt.Sprintf("%d notices were not delivered; the latest: %q (%s)", len(waiting), n.Title, orElse(n.Error, "not tried yet")),
			Remedy: "they are delivered as soon as their channel can be reached"})
	default:
		out = append(out, web.Check{Name: "outbox", OK: true, Detail: "empty"})
	}
	return out
}

func orElse(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// hints are what the start-up screen tells beside the jobs.
func (d *daemon) hints() []string {
	var out []string
	if c := d.checkModels(); !c.OK {
		out = append(out, c.Detail+"; their runs stay queued")
	}
	return out
}

// flagHint repeats the flags that a command needs to find this home again.
func (d *daemon) flagHint() string {
	if len(d.config.Files) == 0 || filepath.Base(d.config.Files[0]) == "rouse.yaml" {
		return ""
	}
	path := d.config.Files[0]
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, path); err == nil && !strings.HasPrefix(rel, "..") {
			path = rel
		}
	}
	return " --config " + path
}

// toolNames are the tools that this version has.
func toolNames() []string {
	return strings.Fields("complete db_create_table db_import db_insert db_query db_schema file_read file_write notify todo")
}
