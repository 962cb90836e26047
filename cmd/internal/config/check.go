package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"rouse/agent/model/playbook"
	"rouse/scheduler/schedule"
)

// TemplateNames are what every run's templates can name; a watch run has File as well.
var TemplateNames = []string{"Job", "Agent", "Run", "Attempt", "Scheduled", "LastSuccess", "LastRun", "Input"}

// checker looks at what single values cannot tell.
type checker struct {
	d   *decoder
	cfg *Config
	o   LoadOptions
}

func check(d *decoder, cfg *Config, o LoadOptions) {
	c := &checker{d, cfg, o}
	if cfg.Version != 1 {
		c.at(Position{File: d.file, Line: 1, Column: 1}, "version", "must be 1, which is the only version there is")
	}
	if cfg.Timezone != "" {
		if _, err := time.LoadLocation(cfg.Timezone); err != nil {
			c.at(Position{File: d.file, Line: 1, Column: 1}, "timezone", "%q is not a known time zone; use an IANA name like Europe/Berlin", cfg.Timezone)
		}
	}
	models := unique(c, "models", cfg.Models, func(m Model) (Name, Position) { return m.Name, m.At })
	agents := unique(c, "agents", cfg.Agents, func(a Agent) (Name, Position) { return a.Name, a.At })
	unique(c, "jobs", cfg.Jobs, func(j Job) (Name, Position) { return j.Name, j.At })
	channels := append(unique(c, "notifications", cfg.Notifications, func(n Notification) (Name, Position) { return n.Name, n.At }), "desktop")
	for i, a := range cfg.Agents {
		c.agent(fmt.Sprintf("agents[%d]", i), a, models)
	}
	for i := range cfg.Jobs {
		c.job(fmt.Sprintf("jobs[%d]", i), &cfg.Jobs[i], agents, models, channels)
	}
}

func (c *checker) at(p Position, path, format string, args ...any) {
	c.d.problems = append(c.d.problems, Problem{File: p.File, Line: p.Line, Column: p.Column, Path: path, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) warn(p Position, path, format string, args ...any) {
	c.at(p, path, format, args...)
	c.d.problems[len(c.d.problems)-1].Warning = true
}

// unique refuses two of one name; names become folders, so case does not part them.
func unique[T any](c *checker, list string, items []T, of func(T) (Name, Position)) []string {
	seen := map[string]Position{}
	var names []string
	for i, item := range items {
		name, at := of(item)
		if first, twice := seen[strings.ToLower(string(name))]; twice {
			c.at(at, fmt.Sprintf("%s[%d].name", list, i), "the name %q is taken, at %s (names are the same whatever their case)", name, first)
		}
		seen[strings.ToLower(string(name))] = at
		names = append(names, string(name))
	}
	return names
}

func (c *checker) reference(at Position, path, what, name string, known []string) {
	if name != "" && !slices.Contains(known, name) {
		c.at(at, path, "%s", Nearest(what, name, known))
	}
}

func (c *checker) agent(path string, a Agent, models []string) {
	c.reference(a.At, path+".model", "model", a.Model, models)
	if a.Instructions != "" && a.InstructionsFile != "" {
		c.at(a.At, path, "give instructions or instructions_file, not both")
	}
	c.readable(a.At, path+".instructions_file", a.InstructionsFile)
	for _, list := range [][]string{a.Tools.Allow, a.Tools.Deny} {
		for _, g := range list {
			c.toolGlob(a.At, path+".tools", g)
		}
	}
}

// toolGlob refuses a pattern that no tool matches: it protects from nothing, or grants nothing.
func (c *checker) toolGlob(at Position, path, glob string) {
	if len(c.o.Tools) == 0 {
		return
	}
	for _, t := range c.o.Tools {
		if ok, err := filepath.Match(glob, t); err == nil && ok {
			return
		}
	}
	if slices.Contains(laterTools, glob) {
		c.at(at, path, "the tool %q is not available in this version", glob)
		return
	}
	c.at(at, path, "%s", Nearest("tool", glob, c.o.Tools))
}

// laterTools are known, so that naming them is not taken for a typing error.
var laterTools = strings.Fields(`shell_run bash git_status git_diff git_commit file_edit edit_file file_search search list_files read_file write_file
	file_undo file_operation_history web_fetch clarify share_artifact schedule_next_run cancel_next_run db_alter_table db_migrate db_upsert db_update
	db_delete db_restore db_execute db_export db_define_view db_run_view db_list_views db_drop_view load_skill capabilities_load capabilities_discover`)

func (c *checker) readable(at Position, path string, file Path) {
	if file == "" {
		return
	}
	info, err := os.Stat(string(file))
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a folder", file)
	}
	if err != nil {
		c.at(at, path, "cannot be read: %v", err)
	}
}

func (c *checker) job(path string, j *Job, agents, models, channels []string) {
	c.reference(j.At, path+".agent", "agent", j.Agent, agents)
	c.reference(j.At, path+".model", "model", j.Model, models)
	for _, name := range j.Notify.Channels {
		c.reference(j.At, path+".notify.channels", "channel", name, channels)
	}
	c.work(path, j)
	c.triggers(path, j)
	for i, e := range j.Expect {
		if (e.File == "") == (e.SQL == "") {
			c.at(e.At, fmt.Sprintf("%s.expect[%d]", path, i), "give exactly one of file and sql")
		}
	}
	for where, text := range map[string]string{"title": j.Notify.Title, "body": j.Notify.Body} {
		c.template(j.At, path+".notify."+where, text)
	}
	if strings.EqualFold(string(j.Name), "all") {
		c.warn(j.At, path+".name", "%q reads like a keyword", j.Name)
	}
}

func (c *checker) template(at Position, path, text string) {
	if err := playbook.CheckTemplate(path, text); err != nil {
		c.at(at, path, "%s", err.Error())
	}
}

// work checks what a job does.
func (c *checker) work(path string, j *Job) {
	given := 0
	for _, set := range []bool{j.Prompt != "", j.PromptFile != "", j.Playbook != nil} {
		if set {
			given++
		}
	}
	if given != 1 {
		c.at(j.At, path, "give exactly one of prompt, prompt_file and playbook")
	}
	c.template(j.At, path+".prompt", j.Prompt)
	if c.readable(j.At, path+".prompt_file", j.PromptFile); j.PromptFile != "" {
		if text, err := os.ReadFile(string(j.PromptFile)); err == nil {
			c.template(j.At, path+".prompt_file", string(text))
		}
	}
	if j.Playbook == nil {
		return
	}
	names := slices.Clone(TemplateNames)
	if j.Watch != nil {
		names = append(names, "File")
	}
	for i, call := range j.Playbook {
		c.toolName(call.At, fmt.Sprintf("%s.playbook[%d].call", path, i), call.Call)
		for _, err := range playbook.Check([]playbook.Call{call.Step()}, names) {
			c.at(call.At, fmt.Sprintf("%s.playbook[%d]", path, i), "%s", err.Error())
		}
	}
}

func (c *checker) toolName(at Position, path, name string) {
	if name == "" || len(c.o.Tools) == 0 || slices.Contains(c.o.Tools, name) {
		return
	}
	if slices.Contains(laterTools, name) {
		c.at(at, path, "the tool %q is not available in this version", name)
		return
	}
	c.at(at, path, "%s", Nearest("tool", name, c.o.Tools))
}

// Step is the call as the playbook provider takes it.
func (p PlaybookCall) Step() playbook.Call {
	return playbook.Call{Name: p.Call, With: p.With, Save: p.Save, If: p.If, Each: p.Each, OnError: p.OnError, Line: p.At.Line}
}

func (c *checker) triggers(path string, j *Job) {
	if _, err := c.cfg.Schedules(j); err != nil {
		c.at(j.At, path, "%s", err.Error())
	}
	if j.Timezone != "" && j.Schedule == "" && j.Every == "" && j.RunAt == "" {
		c.warn(j.At, path+".timezone", "has no effect without a schedule")
	}
	if j.Watch == nil {
		return
	}
	w := j.Watch
	for _, g := range slices.Concat(w.Include, w.Exclude) {
		if !doublestar.ValidatePattern(g) {
			c.at(w.At, path+".watch", "the pattern %q is broken", g)
		}
	}
	if info, err := os.Stat(string(w.Path)); err != nil {
		c.warn(w.At, path+".watch.path", "%s does not exist yet; it is watched as soon as it does", w.Path)
	} else if !info.IsDir() {
		c.at(w.At, path+".watch.path", "%s is a file; a watch needs a folder (use include for one name)", w.Path)
	}
}

// Zone is the daemon's time zone.
func (c *Config) Zone() *time.Location {
	if zone, err := time.LoadLocation(c.Timezone); err == nil && c.Timezone != "" {
		return zone
	}
	return time.Local
}

// Schedules are the schedules of a job; a wrong one is an error that names its key.
func (c *Config) Schedules(j *Job) ([]*schedule.Schedule, error) {
	var out []*schedule.Schedule
	options := map[string]schedule.Options{"schedule": {Cron: j.Schedule}, "every": {Every: j.Every}, "at": {At: j.RunAt}}
	for _, key := range slices.Sorted(maps.Keys(options)) {
		o := options[key]
		if o.Cron+o.Every+o.At == "" {
			continue
		}
		o.Timezone, o.Location, o.Exclude, o.Jitter, o.Job = j.Timezone, c.Zone(), j.Exclude, time.Duration(j.Jitter), string(j.Name)
		s, err := schedule.Parse(o)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}
