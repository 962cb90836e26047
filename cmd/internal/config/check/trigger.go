package check

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"rouse/agent/plan/vars"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/yaml"
	"rouse/cmd/internal/webhook"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
)

// starts checks the triggers of jobs: schedules, watches, webhooks and ends of other jobs.
type starts struct {
	report
	*templates
	calendars

	jobs  []string               // names of all jobs
	hooks map[string]*config.Job // jobs by the path of their webhook
}

func (c *starts) triggers(path string, j *config.Job) {
	c.emptySources(path, j)
	filtering := c.times(path+".exclude", "exclude", j.Exclude) && c.times(path+".only", "only", j.Only) && len(j.Exclude)+len(j.Only) > 0

	c.zone(path+".timezone", j.Timezone)

	all := config.Timings(j)
	schedules, err := c.cfg.SetSchedules(j)
	if err != nil {
		c.wrongSources(path, j, all, filtering)
	}
	if filtering {
		c.left(path, schedules)
	}
	c.pastAt(path+".at", j, err == nil)
	c.viewsWithoutDatabase(path+".context_views", j)
	timed := len(all) > 0

	if at := path + ".jitter"; j.Window != nil && len(all) == 1 && c.d.Given(at) && !c.d.Given("defaults.jitter") {
		c.warn(at, "has no effect on a window, which spreads by itself")
	}
	for _, key := range []string{"timezone", "exclude", "only", "on_miss", "catchup_window", "max_catchup", "jitter"} {
		// Settings in defaults are meant for many jobs. Jobs without a schedule do not use them.
		if collects := key == "timezone" && j.Watch != nil && j.Watch.Collect != nil; !timed && !collects && c.d.Given(path+"."+key) && !c.d.Given("defaults."+key) {
			c.warn(path+"."+key, "has no effect without schedule, every, at or window")
		}
	}
}

// times checks dates and names of calendars one by one, with an arbitrary schedule. So each
// mistake is reported at its own item.
func (c *starts) times(path, key string, texts []string) (right bool) {
	right = true
	for at, one := range config.Each(path, texts) {
		o := schedule.Options{Every: "24h", Calendar: c.cfg.CalendarOf, Exclude: []string{*one}}
		if key == "only" {
			o.Exclude, o.Only = nil, []string{*one}
		}
		_, err := schedule.Parse(o)
		if p := c.schedule(at, key, err); p != nil {
			right = false
			if hint := text.DidYouMean(*one, c.cfg.CalendarNames()); hint != "" {
				p.Hint = hint
			}
		}
	}
	return right
}

// wrongSources reports invalid schedules, and schedules that dates and calendars exclude
// completely.
func (c *starts) wrongSources(path string, j *config.Job, all []config.Timing, filtering bool) {
	location := c.cfg.ZoneOf(j)
	for _, s := range all {
		_, err := schedule.Parse(s.Options)
		c.schedule(path+"."+s.Key, s.Key, err)
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
func (c *starts) pastAt(path string, j *config.Job, valid bool) {
	if at, past := j.PastAt(time.Now()); valid && past && config.On(j.Enabled) {
		c.warn(path, "%s is in the past, so it starts no further run", at.In(c.cfg.ZoneOf(j)).Format("2006-01-02 15:04 MST")).
			Hint = "write a later time, or remove at: once the job has done its work"
	}
}

// left warns of schedules that calendars exclude completely. It skips schedules that use a
// calendar from a URL, because its content is not known yet.
func (c *starts) left(path string, schedules []*schedule.Schedule) {
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
func (c *starts) emptySources(path string, j *config.Job) {
	const message = "is empty; write it like %s, or leave the key out"
	c.notEmpty(path+".schedule", j.Schedule, fmt.Sprintf(message, `"0 8 * * 1-5" or "@daily"`))
	c.notEmpty(path+".every", j.Every, fmt.Sprintf(message, "15m"))
	c.notEmpty(path+".at", j.RunAt, fmt.Sprintf(message, "2026-11-21T08:00:00+01:00"))
}

// schedule reports an error of a schedule. It returns nil if err is nil.
func (c *starts) schedule(path, key string, err error) *config.Problem {
	var wrong *schedule.Error
	switch {
	case errors.As(err, &wrong) && wrong.Field == key:
		p := c.bad(path, "%q %s", wrong.Value, wrong.Reason)
		p.Hint = yaml.TimingHint(key, wrong.Value)
		return p
	case err != nil:
		return c.bad(path, "%s", err.Error())
	}
	return nil
}

func (c *starts) watch(path string, w *config.Watch, j *config.Job) {
	for key, globs := range map[string][]string{"include": w.Include, "exclude": w.Exclude} {
		for at, g := range config.Each(path+"."+key, globs) {
			if !doublestar.ValidatePattern(*g) {
				c.bad(at, "the pattern %q is broken", *g)
			}
		}
	}

	c.watchMode(path, w, j)
	if w.Path == "" || c.watchedPattern(path+".path", w) {
		return
	}

	// A problem with the folder must not block other jobs.
	switch info, err := os.Stat(string(w.Path)); {
	case errors.Is(err, fs.ErrNotExist):
		c.warn(path+".path", "%s does not exist yet; it is watched as soon as it does", config.Display(string(w.Path)))
	case err != nil:
		c.warn(path+".path", "%s cannot be watched (%v); it is as soon as it can be", config.Display(string(w.Path)), errors.Unwrap(err))
	case !info.IsDir():
		p := c.bad(path+".path", "%s is a file; a watch needs a folder, and begins as soon as it is one", config.Display(string(w.Path)))
		p.Warning, p.Hint = true, fmt.Sprintf("watch its folder with include: [%q]", filepath.Base(string(w.Path)))
	}

	for key, after := range map[string]config.After{"on_success": w.OnSuccess, "on_failure": w.OnFailure} {
		// Otherwise each moved file would arrive again and start another run.
		if after.Dir == string(w.Path) {
			c.bad(path+"."+key, "moves files to where they are; choose another folder")
		}
		c.template(path+"."+key+".move", after.Template, vars.DestinationNames())
	}
}

// watchMode checks the settings that depend on the mode.
func (c *starts) watchMode(path string, w *config.Watch, j *config.Job) {
	if at := path + ".max_wait"; w.Mode == config.PerFile && c.d.Given(at) {
		c.bad(at, "goes with mode: batch or converge; with per_file a file starts a run as soon as it is ready")
	}

	if at := path + ".max_files"; c.d.Given(at) {
		switch {
		case w.Mode == config.PerFile || w.Mode == config.Converge:
			c.bad(at, "goes with mode: batch, not %s", w.Mode)
		case w.MaxFiles > config.MaxBatch:
			c.bad(at, "is at most %d: a call is made for no more items than that", config.MaxBatch)
		}
	}

	if at := path + ".collect"; w.Collect != nil {
		until, every := w.Collect.Until != "", w.Collect.Every > 0
		_, err := time.Parse("15:04", w.Collect.Until)
		switch {
		case w.Mode != config.Batch:
			c.bad(at, "goes with mode: batch, not %s: it hands over many files to one run", w.Mode)
		case until == every:
			c.bad(at, `give exactly one of until (until: "08:00") and every (every: 24h)`)
		case until && err != nil:
			c.bad(at+".until", "%q is not a time of day", w.Collect.Until).Hint = `write until: "08:00"`
		}
	}

	// Only a warning, because a batch is rarely that large.
	most, bound := j.Bounds.PlaybookCalls()
	if each, once := config.CallsOfBatch(j.Playbook); w.Mode == config.Batch && each > 0 && w.MaxFiles*each+once > most {
		c.warn(path+".max_files", "a run of %d files makes %d calls, and ends after %d (%s): raise that, or take fewer files", w.MaxFiles, w.MaxFiles*each+once, most, bound)
	}

	for key, after := range map[string]config.After{"on_success": w.OnSuccess, "on_failure": w.OnFailure} {
		if w.Mode == config.Converge && after.Action != "" && after.Action != "leave" {
			c.bad(path+"."+key, "cannot %s files with mode: converge, which is about the folder and takes none of them", after.Action).Hint = "leave it out, or use mode: batch"
		}
	}
}

func (c *starts) follows(path string, j *config.Job) {
	var seen []string
	for at, f := range config.Each(path, j.Follows) {
		c.reference(at, "job", f.Job, c.jobs)
		if slices.Contains(seen, f.Job) {
			c.bad(at, "the job %q is there already; give all its outcomes in one place", f.Job).Hint = "write {job: " + f.Job + ", on: [success, error]}"
		}
		seen = append(seen, f.Job)

		if c.hasNoProblem(at + ".job") {
			c.notEmpty(at, f.Job, "is empty; write the name of a job")
		}
		if c.d.Given(at+".on") && len(f.On) == 0 && c.hasNoProblem(at+".on") {
			c.bad(at+".on", "is empty, so that no run is followed").Hint = "leave it out for success"
		}
		if first := c.cfg.Job(f.Job); first != nil && !config.On(first.Enabled) && config.On(j.Enabled) {
			c.warn(at, "the job %q is disabled, so there are no runs of it to follow", f.Job)
		}
	}
}

// cycles refuses jobs that follow themselves through others. It reports each cycle once.
func (c *starts) cycles() {
	done := map[*config.Job]bool{}
	for i := range c.cfg.Jobs {
		c.findCycle(&c.cfg.Jobs[i], nil, done)
	}
}

// findCycle searches for a cycle. path holds the jobs on the way to j, each of which follows the
// next.
func (c *starts) findCycle(j *config.Job, path []*config.Job, done map[*config.Job]bool) {
	if at := slices.Index(path, j); at >= 0 {
		c.reportCycle(path[at:])
		return
	}
	if done[j] {
		return
	}

	for _, f := range j.Follows {
		if next := c.cfg.Job(f.Job); next != nil {
			c.findCycle(next, append(slices.Clip(path), j), done)
		}
	}
	done[j] = true
}

func (c *starts) reportCycle(cycle []*config.Job) {
	// Begin with the job that is first in the configuration, wherever the search entered the
	// cycle.
	first := 0
	index := func(j *config.Job) int {
		return slices.IndexFunc(c.cfg.Jobs, func(o config.Job) bool { return o.Name == j.Name })
	}
	for i := range cycle {
		if index(cycle[i]) < index(cycle[first]) {
			first = i
		}
	}
	cycle = append(slices.Clone(cycle[first:]), cycle[:first]...)

	var steps, names []string
	for i, j := range cycle {
		next := cycle[(i+1)%len(cycle)]
		at := slices.IndexFunc(j.Follows, func(f config.Followed) bool { return f.Job == string(next.Name) })
		names = append(names, string(j.Name))
		steps = append(steps, fmt.Sprintf("%s follows %s (%s)", j.Name, next.Name, j.Follows[at].At))
	}

	path := config.ItemOf("jobs", index(cycle[0])) + ".after"
	c.bad(path, "goes in a circle, in which each run would start the next for ever: %s", text.List(steps, len(steps))).Hint = "take one of them out: " + strings.Join(names, ", ")
}

// webhookPath matches a path that senders can use without escaping.
var webhookPath = regexp.MustCompile(`^/hooks(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$`)

func (c *starts) webhook(path string, j *config.Job) {
	w := j.Webhook
	if !c.hasNoProblem(path) {
		return
	}
	if c.hasNoProblem(path+".path") && !webhookPath.MatchString(w.Path) {
		c.bad(path+".path", "%q must be like /hooks/NAME: letters, digits, and . _ ~ - within", w.Path)
	}

	if first := c.hooks[w.Path]; first != nil {
		c.bad(path+".path", "the job %q has the webhook %s already (%s)", first.Name, w.Path, first.At)
	} else {
		c.hooks[w.Path] = j
	}
	c.warnSecret(path+".secret", webhook.Scheme(w.Scheme), w.Secret)
	if c.cfg.Dashboard.Off() && config.On(j.Enabled) {
		c.bad(path, "nobody listens for it: dashboard: {listen: off}")
	}
}

// watchedPattern reports a pattern in watch.path, which must be a folder.
func (c *starts) watchedPattern(at string, w *config.Watch) bool {
	if _, err := os.Stat(string(w.Path)); err == nil || !strings.ContainsAny(string(w.Path), "*?") {
		return false
	}

	written := string(w.Path)
	if text, whole := c.d.Written(at); whole {
		written = filepath.ToSlash(text)
	}
	folder := written[:strings.IndexAny(written, "*?")]
	folder = cmp.Or(strings.TrimSuffix(folder[:strings.LastIndexByte(folder, '/')+1], "/"), ".")
	lines := "path: " + yaml.Flow(folder) + ", include: [" + yaml.Flow(path.Base(written)) + "]"
	if strings.Count(strings.TrimPrefix(written, folder), "/") > 1 {
		lines += ", recursive: true"
	}
	c.bad(at, "%q is a pattern, but path must be a folder", config.Short(written)).Hint = "write " + lines
	return true
}
