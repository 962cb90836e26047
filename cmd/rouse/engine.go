package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rouse/agentdb"
	"rouse/agentdb/ledger"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/notify"
	"rouse/cmd/internal/web"
)

var _ web.Engine = (*daemon)(nil)

// Status implements web.Engine.
func (d *daemon) Status(ctx context.Context) (web.Status, error) {
	c, err := d.ledger.Counts(ctx)
	st := web.Status{PID: os.Getpid(), Version: version(), Home: d.home.dir, StartedAt: web.Time{Time: d.startedAt}, Ready: d.ready.Load(),
		Queued: c.Queued, Running: c.Running, Waiting: c.Waiting}
	now := d.current()
	if files := now.config.Files; len(files) > 0 {
		st.Config = files[0]
	}
	st.ConfigAt, st.ConfigProblems, st.ConfigRestart = web.Time{Time: now.at}, []web.Problem{}, list(now.restart)
	if d.reloads != nil {
		st.ConfigProblems = append(st.ConfigProblems, d.reloads.troubles()...)
	}
	return st, err
}

// usable says why the configuration cannot be worked with.
func (s *setup) usable() error {
	if s.problem == nil {
		return nil
	}
	return &web.Error{Status: http.StatusConflict, Message: fmt.Sprintf("the configuration cannot be used:\n%v", s.problem)}
}

// Jobs implements web.Engine.
func (d *daemon) Jobs(ctx context.Context) ([]web.Job, error) {
	now := d.current()
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
	out := []web.Job{}
	for i := range now.config.Jobs {
		j := &now.config.Jobs[i]
		job := web.Job{Name: string(j.Name), Agent: j.Agent, Enabled: config.On(j.Enabled), Triggers: now.triggers(j), Watch: watchOf(j, watches)}
		if w := job.Watch; w != nil {
			job.Problem = wrongWith(w.Problem, w.Degraded)
		}
		job.Next = web.Time{Time: d.scheduler.First(string(j.Name), at)}
		if p, ok := ledger.Paused(pauses, string(j.Name), j.Agent, at); ok {
			job.Paused, job.PausedUntil, job.PausedWhy = true, web.Time{Time: p.Until}, pausedWhy(p)
		}
		if r, ok := last[string(j.Name)]; ok {
			job.LastRun, job.LastState, job.LastOutcome, job.LastAt = fmt.Sprint(r.ID), string(r.State), string(r.Outcome), web.Time{Time: r.QueuedAt}
		}
		out = append(out, job)
	}
	return out, nil
}

// triggers says in words what starts a job.
func (s *setup) triggers(j *config.Job) []string {
	var out []string
	schedules, err := s.config.Schedules(j)
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
		out = append(out, "by hand: rouse run "+string(j.Name))
	}
	return out
}

// Known implements web.Engine.
func (d *daemon) Known(job, agent string) error { return d.current().known(job, agent) }

func (s *setup) known(job, agent string) error {
	if names := s.jobNames(); job != "" && !slices.Contains(names, job) {
		return &web.Error{Status: 404, Message: config.Nearest("job", job, names), Usage: true}
	}
	if names := s.agentNames(); agent != "" && !slices.Contains(names, agent) {
		return &web.Error{Status: 404, Message: config.Nearest("agent", agent, names), Usage: true}
	}
	return nil
}

func (s *setup) jobNames() []string {
	var out []string
	for _, j := range s.config.Jobs {
		out = append(out, string(j.Name))
	}
	return out
}

func (s *setup) agentNames() []string {
	var out []string
	for _, a := range s.config.Agents {
		out = append(out, string(a.Name))
	}
	return out
}

// Fire implements web.Engine.
func (d *daemon) Fire(ctx context.Context, f web.Fire) (int64, error) {
	now := d.current()
	if err := now.usable(); err != nil {
		return 0, err
	}
	if err := now.known(f.Job, f.Agent); err != nil {
		return 0, err
	}
	if err := d.withoutSecrets(f); err != nil {
		return 0, err
	}
	req := ledger.Request{Job: f.Job, Agent: f.Agent, Trigger: ledger.TriggerManual, Detail: ledger.Detail{Input: f.Input, Prompt: f.Prompt, Tool: f.Tool, Args: f.Args}}
	if f.Job != "" {
		j := now.config.Jobs[slices.Index(now.jobNames(), f.Job)]
		if !config.On(j.Enabled) {
			return 0, &web.Error{Status: 409, Message: fmt.Sprintf("the job %s is disabled (enabled: false at %s)", f.Job, j.At)}
		}
		req.Agent = j.Agent
		if f.File != "" || converges(&j) {
			return d.hand(ctx, &j, f)
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

// withoutSecrets refuses what would put a secret of the configuration into the history. To
// black it out instead would start a run on a text that nobody wrote.
func (d *daemon) withoutSecrets(f web.Fire) error {
	for what, value := range map[string]any{"prompt holds": f.Prompt, "input holds": f.Input, "arguments hold": f.Args} {
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if d.runner.Redact(string(text)) != string(text) {
			return &web.Error{Status: 400, Message: fmt.Sprintf("the %s the value of a secret of the configuration, and would stand in the history; leave it out: what needs a secret gets it from the configuration", what)}
		}
	}
	return nil
}

// Database implements web.Engine.
func (d *daemon) Database(ctx context.Context, agent string) (*agentdb.DB, func(), error) {
	now := d.current()
	if err := now.usable(); err != nil {
		return nil, nil, err
	}
	if err := now.known("", agent); err != nil {
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
	now := d.current()
	checks := []web.Check{d.checkConfig(now), d.checkHome()}
	if now.problem == nil { // what is not known is not judged
		checks = append(checks, now.checkModels())
	}
	checks = append(checks, d.checkSecrets(now), d.checkDatabases(now), d.checkWatches(ctx), checkSkills(now.config), checkConfinement(ctx))
	if c, some, err := d.checkDefinitions(ctx); err != nil {
		return nil, err
	} else if some {
		checks = append(checks, c)
	}
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

func (d *daemon) checkConfig(s *setup) web.Check {
	c := web.Check{Name: "configuration", OK: s.problem == nil, Detail: fmt.Sprintf("%s, %s, %s", plural(len(s.config.Jobs), "job"), plural(len(s.config.Agents), "agent"), strings.Join(s.config.Files, ", "))}
	if s.problem != nil {
		c.Detail, c.Remedy = s.problem.Error(), "correct the file, and check it with: rouse config check"
	}
	for _, what := range s.restart {
		c.Detail += "; " + what
	}
	if d.reloads != nil {
		if found := d.reloads.troubles(); len(found) > 0 {
			c.OK, c.Detail = false, fmt.Sprintf("%s; that of %s holds", inLines(found, len(found)), s.at.Local().Format(time.DateTime))
			c.Remedy = "correct the file, and check it with: rouse config check; it takes effect by itself"
		}
	}
	return c
}

// checkDefinitions names the jobs that wait for their owner before they begin.
func (d *daemon) checkDefinitions(ctx context.Context) (c web.Check, some bool, err error) {
	held, err := d.runner.Held(ctx)
	if err != nil || len(held) == 0 {
		return c, false, err
	}
	jobs := slices.Sorted(maps.Keys(held))
	hows := slices.Compact(slices.Sorted(maps.Values(held)))
	return web.Check{Name: "definitions", Detail: fmt.Sprintf("%s; runs of %s wait until you have approved their definitions", strings.Join(hows, "; "), strings.Join(jobs, ", ")),
		Remedy: "see to it that only you can write there, or look at each and approve it: rouse inbox"}, true, nil
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

func (s *setup) checkModels() web.Check {
	c := web.Check{Name: "models", OK: true}
	var names, lacking []string
	for _, m := range s.config.Models {
		names = append(names, fmt.Sprintf("%s (%s)", m.Name, m.Model))
	}
	c.Detail = strings.Join(names, ", ")
	for _, j := range s.config.Jobs {
		if j.Playbook == nil && len(s.config.Models) == 0 && config.On(j.Enabled) {
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
func (s *setup) hints() []string {
	var out []string
	if c := s.checkModels(); !c.OK {
		out = append(out, c.Detail+"; their runs stay queued")
	}
	return out
}

// flagHint repeats the flags that a command needs to find this home again.
func (s *setup) flagHint() string {
	if len(s.config.Files) == 0 || filepath.Base(s.config.Files[0]) == "rouse.yaml" {
		return ""
	}
	path := s.config.Files[0]
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, path); err == nil && !strings.HasPrefix(rel, "..") {
			path = rel
		}
	}
	return " --config " + path
}

// toolNames are the tools that this version has.
func toolNames() []string {
	return strings.Fields("bash cancel_next_run capabilities_discover capabilities_load clarify complete db_alter_table db_create_table db_define_view db_delete db_drop_view db_execute db_export db_import db_insert db_list_views db_migrate db_query db_restore db_run_view db_schema db_update db_upsert edit_file file_edit file_operation_history file_read file_search file_undo file_write git_commit git_diff git_status list_files load_skill notify read_file reduce schedule_next_run search share_artifact shell_run todo web_fetch write_file")
}
