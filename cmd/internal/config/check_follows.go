package config

import (
	"fmt"
	"slices"
	"strings"

	"rouse/internal/domain"
	"rouse/internal/text"
)

// Followed are the jobs whose runs a job follows, with the outcomes that it waits for.
func (j *Job) Followed() map[string][]domain.Outcome {
	out := map[string][]domain.Outcome{}
	for _, f := range j.Follows {
		out[f.Job] = f.On
	}
	return out
}

// follows checks which jobs a job follows.
func (c *checker) follows(path string, j *Job) {
	var seen []string
	for i, f := range j.Follows {
		at := fmt.Sprintf("%s[%d]", path, i)
		c.reference(at, "job", f.Job, c.jobs)
		if slices.Contains(seen, f.Job) {
			c.bad(at, "the job %q is there already; give all its outcomes in one place", f.Job).Hint = "write {job: " + f.Job + ", on: [success, error]}"
		}
		seen = append(seen, f.Job)

		if f.Job == "" && c.hasNoProblem(at) && c.hasNoProblem(at+".job") && c.d.given(at) {
			c.bad(at, "is empty; write the name of a job")
		}
		if c.d.given(at+".on") && len(f.On) == 0 && c.hasNoProblem(at+".on") {
			c.bad(at+".on", "is empty, so that no run is followed").Hint = "leave it out for success"
		}
		if first := c.jobNamed[f.Job]; first != nil && !On(first.Enabled) && On(j.Enabled) {
			c.warn(at, "the job %q is disabled, so there are no runs of it to follow", f.Job)
		}
	}
}

// cycles refuses jobs that follow themselves, directly or by way of others: once begun, they would never end. Each cycle is
// reported once, at the first of its jobs.
func (c *checker) cycles() {
	done := map[*Job]bool{}
	for i := range c.cfg.Jobs {
		c.findCycle(&c.cfg.Jobs[i], nil, done)
	}
}

// findCycle goes back along what a job follows. path are the jobs on the way to it, each of which follows the next.
func (c *checker) findCycle(j *Job, path []*Job, done map[*Job]bool) {
	if at := slices.Index(path, j); at >= 0 {
		c.reportCycle(path[at:])
		return
	}
	if done[j] {
		return
	}

	for _, f := range j.Follows {
		if next := c.jobNamed[f.Job]; next != nil {
			c.findCycle(next, append(slices.Clip(path), j), done)
		}
	}
	done[j] = true
}

// reportCycle names the jobs of a cycle with the lines of their after.
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
		place := j.Follows[at].At
		place.File = display(place.File)
		names = append(names, string(j.Name))
		steps = append(steps, fmt.Sprintf("%s follows %s (%s)", j.Name, next.Name, place))
	}

	path := fmt.Sprintf("jobs[%d].after", index(cycle[0]))
	c.bad(path, "goes in a circle, in which each run would start the next for ever: %s", text.List(steps, len(steps))).Hint = "take one of them out: " + strings.Join(names, ", ")
}
