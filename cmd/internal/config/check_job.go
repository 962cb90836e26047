package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"rouse/agent"
	"rouse/internal/domain"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
)

func (c *checker) job(path string, j *Job) {
	agent := c.agent(j)
	if agent == nil { // else it need not be looked for among a thousand
		c.reference(path+".agent", "agent", j.Agent, c.agents)
	}
	c.reference(path+".model", "model", j.Model, c.models)
	if agent != nil && !On(agent.Enabled) && On(j.Enabled) {
		c.warn(path+".agent", "the agent %q is disabled, so this job never runs", j.Agent)
	}

	c.mode, c.saved = "", nil
	if j.Watch != nil {
		c.mode = j.Watch.Mode
	}

	c.work(path, j, agent)
	c.triggers(path, j)
	if j.Watch != nil {
		c.watch(path+".watch", j.Watch, j)
	}
	if j.Webhook != nil {
		c.webhook(path+".webhook", j)
	}
	c.follows(path+".after", j)

	if j.Session == SessionKeep && !j.Prompts() {
		c.bad(path+".session", "keep is for jobs with a prompt: a playbook and a module are told nothing of earlier runs")
	}

	c.conditions(path+".when", j, agent)
	for at, e := range each(path+".expect", j.Expect) {
		c.expect(at, e, agent)
	}

	if j.Retry.Backoff > j.Retry.MaxBackoff {
		c.bad(path+".retry", "backoff %s is longer than max_backoff %s", j.Retry.Backoff, j.Retry.MaxBackoff)
	}

	for at, name := range each(path+".notify.channels", j.Notify.Channels) {
		c.reference(at, "channel", *name, c.channels)
	}

	// A notice is rendered after the run, when the manifest is deleted and the outcome is known.
	names := append(slices.DeleteFunc(scope(j), func(name string) bool { return name == manifest }), "Outcome", "Summary", "Error")
	c.template(path+".notify.title", j.Notify.Title, names)
	c.template(path+".notify.body", j.Notify.Body, names)
}

// work checks what a job does.
func (c *checker) work(path string, j *Job, agent *Agent) {
	c.oneOf(path, "prompt", "prompt_file", "playbook", "skill")
	c.notEmpty(path+".prompt", j.Prompt, "is empty")
	if c.d.given(path + ".prompt_file") {
		c.template(path+".prompt_file", j.Prompt, scope(j))
	} else {
		c.template(path+".prompt", j.Prompt, scope(j))
	}

	if j.Playbook != nil {
		c.playbook(path, j, agent)
	}
	if at := path + ".input"; c.d.given(at) && !c.d.given(path+".skill") {
		c.bad(at, "goes with skill: what its module is given")
	}
	c.notEmpty(path+".skill", j.Skill, "is empty; write the name of a skill")
	c.value(path+".input", j.Input, scope(j))
	if at := path + ".workspace"; c.d.given(at) && !c.d.given(path+".skill") {
		c.bad(at, "goes with skill: the workspace in which its module works")
	}
	c.template(path+".workspace", j.Workspace, scope(j))
}

// hasNoProblem reports whether nothing was wrong with a value yet.
func (c *checker) hasNoProblem(path string) bool { return !c.d.wrong[path] }

func (c *checker) triggers(path string, j *Job) {
	c.emptySources(path, j)
	filtering := c.times(path+".exclude", "exclude", j.Exclude) && c.times(path+".only", "only", j.Only) && len(j.Exclude)+len(j.Only) > 0

	c.zone(path+".timezone", j.Timezone)

	all := sources(j)
	schedules, err := c.cfg.parseSchedules(j)
	if err == nil {
		j.schedules = schedules
	} else {
		c.wrongSources(path, j, all, filtering)
	}
	if filtering {
		c.left(path, schedules)
	}
	c.pastAt(path+".at", j, err == nil)
	c.viewsWithoutDatabase(path+".context_views", j)
	timed := len(all) > 0

	if at := path + ".jitter"; j.Window != nil && len(all) == 1 && c.d.given(at) && !c.d.given("defaults.jitter") {
		c.warn(at, "has no effect on a window, which spreads by itself")
	}
	for _, key := range []string{"timezone", "exclude", "only", "on_miss", "catchup_window", "max_catchup", "jitter"} {
		// defaults are meant for many jobs; those without a schedule just do not use them.
		if collects := key == "timezone" && j.Watch != nil && j.Watch.Collect != nil; !timed && !collects && c.d.given(path+"."+key) && !c.d.given("defaults."+key) {
			c.warn(path+"."+key, "has no effect without schedule, every, at or window")
		}
	}
}

// times checks dates and names of calendars, each by itself, with any schedule, so that a mistake has its own place in the list.
func (c *checker) times(path, key string, texts []string) (right bool) {
	right = true
	for at, one := range each(path, texts) {
		o := schedule.Options{Every: "24h", Calendar: c.cfg.CalendarOf, Exclude: []string{*one}}
		if key == "only" {
			o.Exclude, o.Only = nil, []string{*one}
		}
		_, err := schedule.Parse(o)
		if c.schedule(at, key, err); err != nil {
			right = false
			if hint := text.DidYouMean(*one, slices.Sorted(maps.Keys(c.cfg.calendars))); hint != "" {
				c.d.problems[len(c.d.problems)-1].Hint = hint
			}
		}
	}
	return right
}

// wrongSources reports schedules that are wrong, or of which dates and calendars leave nothing.
func (c *checker) wrongSources(path string, j *Job, all []timing, filtering bool) {
	location := c.cfg.ZoneOf(j)
	for _, s := range all {
		_, err := schedule.Parse(s.Options)
		c.schedule(path+"."+s.key, s.key, err)
		if err != nil || !filtering {
			continue
		}

		o := s.Options
		o.Location, o.Exclude, o.Only, o.Calendar = location, j.Exclude, j.Only, c.cfg.CalendarOf
		_, err = schedule.Parse(o)
		key := "exclude"
		var wrong *schedule.Error
		if errors.As(err, &wrong) {
			key = wrong.Field
		}
		c.schedule(path+"."+key, key, err)
	}
}

// pastAt warns of an at: in the past.
func (c *checker) pastAt(path string, j *Job, valid bool) {
	if at, past := j.pastAt(time.Now()); valid && past && On(j.Enabled) {
		c.warn(path, "%s is in the past, so it starts no further run", at.In(c.cfg.ZoneOf(j)).Format("2006-01-02 15:04 MST")).
			Hint = "write a later time, or remove at: once the job has done its work"
	}
}

// pastAt returns the time of the job's at: and whether it is in the past.
func (j *Job) pastAt(now time.Time) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, j.RunAt)
	return at, err == nil && at.Before(now)
}

// Expired reports whether the at: of the job is in the past and the job has no other trigger.
func (j *Job) Expired(now time.Time) bool {
	_, past := j.pastAt(now)
	return past && On(j.Enabled) && len(sources(j)) == 1 && !j.RunOnStart && j.Watch == nil && j.Webhook == nil && len(j.Follows) == 0
}

func (c *checker) viewsWithoutDatabase(path string, j *Job) {
	if a := c.agent(j); len(j.ContextViews) > 0 && a != nil && !On(a.Database.Enabled) {
		c.warn(path, "the agent %q has no database (database.enabled: false), so no view has rows", a.Name).Hint = "remove context_views, or give the agent its database"
	}
}

// left warns of schedules of which calendars leave nothing, by what they say now; those that are fetched are not known here.
func (c *checker) left(path string, schedules []*schedule.Schedule) {
	for _, s := range schedules {
		if len(s.Calendars()) == 0 || slices.ContainsFunc(s.Calendars(), func(one *schedule.Calendar) bool { return c.fetched(one.Name()) }) {
			continue
		}
		if s.Next(time.Now()).IsZero() {
			c.warn(path, "by what its calendars hold now, it does not start again")
		}
	}
}

// emptySources refuses blank schedules. A job with one would run only manually.
func (c *checker) emptySources(path string, j *Job) {
	const message = "is empty; write it like %s, or leave the key out"
	c.notEmpty(path+".schedule", j.Schedule, fmt.Sprintf(message, `"0 8 * * 1-5" or "@daily"`))
	c.notEmpty(path+".every", j.Every, fmt.Sprintf(message, "15m"))
	c.notEmpty(path+".at", j.RunAt, fmt.Sprintf(message, "2026-11-21T08:00:00+01:00"))
}

func (c *checker) schedule(path, key string, err error) {
	var wrong *schedule.Error
	switch {
	case errors.As(err, &wrong) && wrong.Field == key:
		c.bad(path, "%q %s", wrong.Value, wrong.Reason).Hint = timingLine(key, wrong.Value)
	case err != nil:
		c.bad(path, "%s", err.Error())
	}
}

// timing is a schedule as it is written, with its key.
type timing struct {
	key string
	schedule.Options
}

// sources are the schedules of a job as they are written, by their keys.
func sources(j *Job) (out []timing) {
	add := func(key string, o schedule.Options) {
		if o.Cron+o.Every+o.At+o.Window != "" {
			out = append(out, timing{key, o})
		}
	}

	add("at", schedule.Options{At: j.RunAt})
	add("every", schedule.Options{Every: j.Every})
	add("schedule", schedule.Options{Cron: j.Schedule})
	if w := j.Window; w != nil && w.From != "" && w.To != "" { // else that was said
		add("window", schedule.Options{Window: w.From + "-" + w.To, Days: w.Days})
	}
	return out
}

// Scheduled reports whether a clock starts a job.
func (j *Job) Scheduled() bool { return len(sources(j)) > 0 }

// Schedules are the schedules of a job of a checked configuration, always in the same order, so that a reload does not change it.
func (c *Config) Schedules(j *Job) ([]*schedule.Schedule, error) {
	if j.schedules != nil {
		return j.schedules, nil
	}
	return c.parseSchedules(j)
}

func (c *Config) parseSchedules(j *Job) (out []*schedule.Schedule, err error) {
	for _, s := range sources(j) {
		o := s.Options
		o.Timezone, o.Location, o.Job = j.Timezone, c.Zone(), string(j.Name)
		o.Follows = j.Timezone == "" && c.Timezone == ""
		o.Exclude, o.Only, o.Calendar = j.Exclude, j.Only, c.CalendarOf
		if o.Window == "" {
			o.Jitter = time.Duration(j.Jitter)
		}

		parsed, err := schedule.Parse(o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.key, err)
		}
		out = append(out, parsed)
	}
	return out, nil
}

func (c *checker) watch(path string, w *watch, j *Job) {
	for key, globs := range map[string][]string{"include": w.Include, "exclude": w.Exclude} {
		for at, g := range each(path+"."+key, globs) {
			if !doublestar.ValidatePattern(*g) {
				c.bad(at, "the pattern %q is broken", *g)
			}
		}
	}

	c.watchMode(path, w, j)
	if w.Path == "" || c.watchedPattern(path+".path", w) {
		return
	}

	// What is wrong with a folder today holds up no other job.
	switch info, err := os.Stat(string(w.Path)); {
	case errors.Is(err, fs.ErrNotExist):
		c.warn(path+".path", "%s does not exist yet; it is watched as soon as it does", display(string(w.Path)))
	case err != nil:
		c.warn(path+".path", "%s cannot be watched (%v); it is as soon as it can be", display(string(w.Path)), errors.Unwrap(err))
	case !info.IsDir():
		p := c.bad(path+".path", "%s is a file; a watch needs a folder, and begins as soon as it is one", display(string(w.Path)))
		p.Warning, p.Hint = true, fmt.Sprintf("watch its folder with include: [%q]", filepath.Base(string(w.Path)))
	}

	for key, after := range map[string]After{"on_success": w.OnSuccess, "on_failure": w.OnFailure} {
		// Otherwise each moved file would arrive again, and start the next run.
		if after.Dir == string(w.Path) {
			c.bad(path+"."+key, "moves files to where they are; choose another folder")
		}
		c.template(path+"."+key+".move", after.Template, agent.DestinationNames())
	}
}

// maxBatch is what a playbook's each takes.
const maxBatch = 10_000

// watchMode checks what goes with a mode and what does not.
func (c *checker) watchMode(path string, w *watch, j *Job) {
	if at := path + ".max_wait"; w.Mode == modePerFile && c.d.given(at) {
		c.bad(at, "goes with mode: batch or converge; with per_file a file starts a run as soon as it is ready")
	}

	if at := path + ".max_files"; c.d.given(at) {
		switch {
		case w.Mode == modePerFile || w.Mode == modeConverge:
			c.bad(at, "goes with mode: batch, not %s", w.Mode)
		case w.MaxFiles > maxBatch:
			c.bad(at, "is at most %d: a call is made for no more items than that", maxBatch)
		}
	}

	if at := path + ".collect"; w.Collect != nil {
		until, every := w.Collect.Until != "", w.Collect.Every > 0
		_, err := time.Parse("15:04", w.Collect.Until)
		switch {
		case w.Mode != modeBatch:
			c.bad(at, "goes with mode: batch, not %s: it hands over many files to one run", w.Mode)
		case until == every:
			c.bad(at, `give exactly one of until (until: "08:00") and every (every: 24h)`)
		case until && err != nil:
			c.bad(at+".until", "%q is not a time of day", w.Collect.Until).Hint = `write until: "08:00"`
		}
	}

	// Only a warning: a batch is rarely that large.
	most, bound := j.Bounds.playbookCalls()
	if each, once := callsOfBatch(j.Playbook); w.Mode == modeBatch && each > 0 && w.MaxFiles*each+once > most {
		c.warn(path+".max_files", "a run of %d files makes %d calls, and ends after %d (%s): raise that, or take fewer files", w.MaxFiles, w.MaxFiles*each+once, most, bound)
	}

	for key, after := range map[string]After{"on_success": w.OnSuccess, "on_failure": w.OnFailure} {
		if w.Mode == modeConverge && after.Action != "" && after.Action != "leave" {
			c.bad(path+"."+key, "cannot %s files with mode: converge, which is about the folder and takes none of them", after.Action).Hint = "leave it out, or use mode: batch"
		}
	}
}

func (c *checker) expect(path string, e *expect, agent *Agent) {
	switch kind := c.oneOf(path, "file", "sql", "command"); kind {
	case "sql":
		c.notEmpty(path+".sql", e.SQL, "is empty")
		c.needsDatabase(path+".sql", agent)
	case "command":
		at := path + ".command"
		if (len(e.Command) == 0 || strings.TrimSpace(e.Command[0]) == "") && c.hasNoProblem(at) {
			c.bad(at, "must name a program").Hint = "as in command: [go, test, ./...]"
		}
		if agent != nil && agent.Mode == "none" {
			c.bad(at, "the agent %q has mode: none, and runs no programs", agent.Name)
		}
	}
}

func (c *checker) needsDatabase(path string, agent *Agent) {
	if agent != nil && !On(agent.Database.Enabled) {
		c.bad(path, "the agent %q has no database (database.enabled: false)", agent.Name)
	}
}

// Followed are the jobs whose runs a job follows, with the outcomes that it waits for.
func (j *Job) Followed() map[string][]domain.Outcome {
	out := map[string][]domain.Outcome{}
	for _, f := range j.Follows {
		out[f.Job] = f.On
	}
	return out
}

func (c *checker) follows(path string, j *Job) {
	var seen []string
	for at, f := range each(path, j.Follows) {
		c.reference(at, "job", f.Job, c.jobs)
		if slices.Contains(seen, f.Job) {
			c.bad(at, "the job %q is there already; give all its outcomes in one place", f.Job).Hint = "write {job: " + f.Job + ", on: [success, error]}"
		}
		seen = append(seen, f.Job)

		if c.hasNoProblem(at + ".job") {
			c.notEmpty(at, f.Job, "is empty; write the name of a job")
		}
		if c.d.given(at+".on") && len(f.On) == 0 && c.hasNoProblem(at+".on") {
			c.bad(at+".on", "is empty, so that no run is followed").Hint = "leave it out for success"
		}
		if first := c.cfg.jobNamed[f.Job]; first != nil && !On(first.Enabled) && On(j.Enabled) {
			c.warn(at, "the job %q is disabled, so there are no runs of it to follow", f.Job)
		}
	}
}

// cycles refuses jobs that follow themselves through others. It reports each cycle once.
func (c *checker) cycles() {
	done := map[*Job]bool{}
	for i := range c.cfg.Jobs {
		c.findCycle(&c.cfg.Jobs[i], nil, done)
	}
}

// findCycle searches a cycle. path are the jobs on the way to j, each of which follows the next.
func (c *checker) findCycle(j *Job, path []*Job, done map[*Job]bool) {
	if at := slices.Index(path, j); at >= 0 {
		c.reportCycle(path[at:])
		return
	}
	if done[j] {
		return
	}

	for _, f := range j.Follows {
		if next := c.cfg.jobNamed[f.Job]; next != nil {
			c.findCycle(next, append(slices.Clip(path), j), done)
		}
	}
	done[j] = true
}

func (c *checker) reportCycle(cycle []*Job) {
	// It begins with the job that comes first in the configuration, wherever it was entered.
	first := 0
	index := func(j *Job) int { return slices.IndexFunc(c.cfg.Jobs, func(o Job) bool { return o.Name == j.Name }) }
	for i := range cycle {
		if index(cycle[i]) < index(cycle[first]) {
			first = i
		}
	}
	cycle = append(slices.Clone(cycle[first:]), cycle[:first]...)

	var steps, names []string
	for i, j := range cycle {
		next := cycle[(i+1)%len(cycle)]
		at := slices.IndexFunc(j.Follows, func(f follow) bool { return f.Job == string(next.Name) })
		names = append(names, string(j.Name))
		steps = append(steps, fmt.Sprintf("%s follows %s (%s)", j.Name, next.Name, j.Follows[at].At))
	}

	path := itemOf("jobs", index(cycle[0])) + ".after"
	c.bad(path, "goes in a circle, in which each run would start the next for ever: %s", text.List(steps, len(steps))).Hint = "take one of them out: " + strings.Join(names, ", ")
}
