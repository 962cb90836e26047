package config

import (
	"fmt"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/internal/fspath"
)

// The labels, as places in a list of three (docs/security.md).
const (
	untrusted = iota
	privateData
	outward
)

var labelWords = [...]string{"A  untrusted content", "B  private data", "C  effect beyond the host"}

// source is a line of the configuration that brings a label.
type source struct {
	what string
	at   Position
}

// reach are the lines that bring labels to the runs of an agent.
type reach struct {
	path    string // agents[1]
	sources [3][]source
	// onlyReads counts the sources of external effects that only read from a host granted by name.
	onlyReads int
}

func (r *reach) add(label int, what string, at Position) {
	s := source{what, at}
	if !slices.Contains(r.sources[label], s) {
		r.sources[label] = append(r.sources[label], s)
	}
}

// warnTaints decides what is private by default, and warns of jobs whose runs can combine untrusted
// content, private data and external effects (docs/security.md).
func (c *checker) warnTaints() {
	reached := map[*Agent]*reach{}
	for path, a := range each("agents", c.cfg.Agents) {
		if On(a.Enabled) && a.At.Line > 0 {
			reached[a] = c.ownReach(path, a)
		}
	}

	c.follow(reached, untrusted)
	for a, r := range reached {
		a.untrusted = r.sources[untrusted]
	}
	c.privatePlaces(reached)
	for a, r := range reached {
		c.addPrivate(r, a)
	}
	c.follow(reached, privateData)
	c.warnConditions(reached)

	for path, j := range each("jobs", c.cfg.Jobs) {
		if r := reached[c.agent(j)]; r != nil && On(j.Enabled) && j.At.Line > 0 {
			c.warnJob(path+".agent", r)
		}
	}
}

// UntrustedSources describes the configuration lines by which untrusted content can reach the runs of an agent.
func (c *Config) UntrustedSources(a *Agent) []string {
	var out []string
	for _, s := range a.untrusted {
		out = append(out, fmt.Sprintf("%s at %s", s.what, c.Where(s.at)))
	}
	return out
}

// warnJob draws what the runs of a job can come to hold.
func (c *checker) warnJob(path string, r *reach) {
	var drawn strings.Builder
	for label, list := range r.sources {
		if len(list) == 0 {
			return
		}

		for i, s := range list {
			word := labelWords[label]
			if i > 0 {
				word = ""
			}
			fmt.Fprintf(&drawn, "\n    %-26s %s, %s", word, s.what, s.at)
		}
	}

	c.warn(path, "a run can come to hold all three labels together, and the call that would bring the third waits for your approval; let one job read what is untrusted and write it down as data, and another one act on that%s", drawn.String())
}

// ownReach are the lines of an agent and of its jobs that bring labels, but for what is private of its own.
func (c *checker) ownReach(path string, a *Agent) *reach {
	r := &reach{path: path}
	for _, i := range c.jobsOf[string(a.Name)] {
		j, at := &c.cfg.Jobs[i], itemOf("jobs", i)
		if !On(j.Enabled) {
			continue
		}
		if j.Watch != nil {
			r.add(untrusted, "a watch", c.d.place(at+".watch"))
		}
		if j.Webhook != nil {
			r.add(untrusted, "a webhook", c.d.place(at+".webhook"))
		}
	}

	c.watchedReads(r, a)
	c.serverReach(r, a)
	if len(a.Grants.Network) > 0 && (c.tools == nil || len(c.toolsGiven(tool.RequiresNetwork).Where(a.Tools.permits)) > 0 || c.offersNetwork(a)) {
		at := c.d.place(path + ".grants.network")
		r.add(untrusted, "web pages", at)
		r.add(outward, "grants.network", at)
		if !slices.ContainsFunc(a.Grants.Network, networkGrant.sends) {
			r.onlyReads++
		}
	}

	for key, g := range each(path+".grants.commands", a.Grants.Commands) {
		at := c.d.place(key)
		switch {
		case g.Network == "host":
			r.add(untrusted, "commands with network", at)
			r.add(outward, "commands with network", at)
		case a.Sandbox == "off":
			r.add(outward, "commands without a sandbox", at)
		}
	}

	c.executorReach(r, a)
	beyond := c.toolsGiven(tool.RequiresNothing).Where(func(s tool.Spec) bool { return s.Scope == tool.ScopeOutside }).Where(a.Tools.permits)
	if others := strings.Join(beyond.Names(), ", "); others != "" {
		r.add(untrusted, others, a.At)
		r.add(outward, others, a.At)
	}

	return r
}

// watchedReads adds the folders of an agent in which jobs, of whichever agent, have strangers leave files.
func (c *checker) watchedReads(r *reach, a *Agent) {
	if len(c.watching) == 0 {
		return
	}

	reads := c.reads(r.path, a)
	for _, j := range c.watching {
		// A disabled job counts: what strangers left for it is still there.
		if On(j.Enabled) && j.Agent == string(a.Name) {
			continue
		}
		for _, p := range reads {
			switch {
			case c.overlap(p.what, string(j.Watch.Path)):
				r.add(untrusted, fmt.Sprintf("reads what the job %s watches", j.Name), p.at)
			case slices.ContainsFunc(j.Watch.MovedTo(), func(folder string) bool { return c.overlap(p.what, folder) }):
				r.add(untrusted, fmt.Sprintf("reads where the job %s moves its files", j.Name), p.at)
			}
		}
	}
}

// addPrivate adds the lines of an agent that let it read what is for its owner alone.
func (c *checker) addPrivate(r *reach, a *Agent) {
	for key, g := range each(r.path+".grants.read", a.Grants.Read) {
		if On(g.Private) {
			r.add(privateData, "grants.read", c.d.place(key))
		}
	}
	for key, g := range each(r.path+".grants.secrets", a.Grants.Secrets) {
		if On(g.Private) {
			r.add(privateData, "grants.secrets", c.d.place(key))
		}
	}

	c.executorPrivate(r, a)
	if slices.Contains(a.Private.folders, string(a.Workdir)) {
		what := "the workdir"
		if a.Private.Workdir == nil {
			what += ", private by default (private: {workdir: false} if nothing in it is)"
		}
		r.add(privateData, what, c.d.place(r.path+".private"))
	}
	if a.Private.database {
		r.add(privateData, "the database", c.d.place(r.path+".private"))
	}

	for _, folder := range a.Private.folders {
		for _, p := range c.reads(r.path, a) {
			if folder != string(a.Workdir) && c.overlap(folder, p.what) {
				r.add(privateData, "reads the private workdir of another agent", p.at)
			}
		}
	}
}

// reads are the folders that an agent can read, with the lines that let it.
func (c *checker) reads(path string, a *Agent) []source {
	out := []source{{string(a.Workdir), c.d.place(path + ".workdir")}}
	for key, g := range each(path+".grants.read", a.Grants.Read) {
		out = append(out, source{string(g.Path), c.d.place(key)})
	}
	for key, p := range each(path+".grants.write", a.Grants.Write) {
		out = append(out, source{string(*p), c.d.place(key)})
	}
	return out
}

// follow passes a label on to each agent that reads where an agent with the label writes. It adds
// the lines of others to agents with the label too, because the label would stay without their own.
func (c *checker) follow(reached map[*Agent]*reach, label int) {
	// By the places of the agents in the list: each is compared with each other one.
	own, has := make([]bool, len(c.cfg.Agents)), make([]bool, len(c.cfg.Agents))
	for i := range c.cfg.Agents {
		r := reached[&c.cfg.Agents[i]]
		own[i] = r != nil && len(r.sources[label]) > 0
		has[i] = own[i]
	}

	for grown := slices.Contains(own, true); grown; {
		grown = false
		for i := range c.cfg.Agents { // in order, so that the same configuration is always drawn the same
			to := &c.cfg.Agents[i]
			r := reached[to]
			if r == nil || has[i] && !own[i] {
				continue
			}

			before, reads := len(r.sources[label]), c.reads(r.path, to)
			for k := range c.cfg.Agents {
				if k == i || !has[k] || own[i] && !own[k] {
					continue
				}
				from := &c.cfg.Agents[k]
				if p, ok := c.shared(from, reads); ok {
					r.add(label, fmt.Sprintf("reads where the agent %s writes", from.Name), p.at)
				}
			}
			has[i] = len(r.sources[label]) > 0
			grown = grown || len(r.sources[label]) > before
		}
	}
}

// shared is the first of some places in which an agent can write.
func (c *checker) shared(from *Agent, places []source) (source, bool) {
	for _, p := range places {
		if slices.ContainsFunc(from.writes(), func(folder string) bool { return c.overlap(folder, p.what) }) {
			return p, true
		}
	}
	return source{}, false
}

// overlap reports whether one of two folders is, or lies in, the other.
func (c *checker) overlap(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	a, b = c.plainPlace(a), c.plainPlace(b)
	return fspath.Within(a, b) || fspath.Within(b, a)
}

// plainPlace is the same as without a checker, but each path is looked at once.
func (c *checker) plainPlace(path string) string {
	real, ok := c.plain[path]
	if !ok {
		real = plainPlace(path)
		c.plain[path] = real
	}
	return real
}

// private is what of an agent's own places is for its owner alone.
type private struct {
	Workdir  *bool `key:"workdir" unset:"true if the agent has both untrusted input and a way out (also by a condition) other than reading from hosts granted by name" say:"a run that reads in the workdir holds private data (B)"`
	Database *bool `key:"database" unset:"false" say:"a run that reads rows of the database holds private data (B)"`

	// What holds in the end, once all agents and jobs are known.
	folders  []string
	database bool
}

// PrivatePlaces returns the private folders that an agent can reach, and if its database is private.
func (a *Agent) PrivatePlaces() (folders []string, database bool) {
	return a.Private.folders, a.Private.database
}

// privatePlaces decides which places are private. By default, a workdir is private if the agent has
// untrusted input and a way to send its files out. The database is not, because rows have labels.
func (c *checker) privatePlaces(reached map[*Agent]*reach) {
	for a, r := range reached {
		a.Private.folders, a.Private.database = nil, On(a.Database.Enabled) && a.Private.Database != nil && *a.Private.Database
		private := len(r.sources[untrusted]) > 0 && (len(r.sources[outward]) > r.onlyReads || c.sending[a])
		if said := a.Private.Workdir; said != nil {
			private = *said
		}
		if private {
			a.Private.folders = append(a.Private.folders, string(a.Workdir))
		}

		// What one owner says of a folder holds for whoever reads it.
		for i := range c.cfg.Agents { // a disabled one has left it there
			if o := &c.cfg.Agents[i]; o != a && o.Private.Workdir != nil && *o.Private.Workdir {
				a.Private.folders = append(a.Private.folders, string(o.Workdir))
			}
		}
	}
}
