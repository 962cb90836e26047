package check

import (
	"fmt"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/cmd/internal/config"
	"rouse/internal/fspath"
)

// The labels as indexes (docs/dev/security-tests.md).
const (
	untrusted = iota
	privateData
	outward
)

var labelWords = [...]string{"A  untrusted content", "B  private data", "C  effect beyond the host"}

// source is a setting that brings a label.
type source struct {
	what string
	at   config.Position
}

// reach holds the settings that bring labels to the runs of an agent.
type reach struct {
	path    string // agents[1]
	sources [3][]source
	// onlyReads counts the sources of external effects that only read from a host granted by name.
	onlyReads int
}

func (r *reach) add(label int, what string, at config.Position) {
	s := source{what, at}
	if !slices.Contains(r.sources[label], s) {
		r.sources[label] = append(r.sources[label], s)
	}
}

// warnTaints sets the default of private. It warns of jobs if their runs can combine untrusted
// content, private data and external effects (docs/dev/security-tests.md).
func (c *checker) warnTaints() {
	reached := map[*config.Agent]*reach{}
	for path, a := range config.Each("agents", c.cfg.Agents) {
		if config.On(a.Enabled) && a.At.Line > 0 {
			reached[a] = c.ownReach(path, a)
		}
	}

	c.follow(reached, untrusted)
	for a, r := range reached {
		a.Untrusted = nil
		for _, s := range r.sources[untrusted] {
			a.Untrusted = append(a.Untrusted, fmt.Sprintf("%s at %s", s.what, c.cfg.Where(s.at)))
		}
	}
	c.privatePlaces(reached)
	for a, r := range reached {
		c.addPrivate(r, a)
	}
	c.follow(reached, privateData)
	c.warnConditions(reached)

	for path, j := range config.Each("jobs", c.cfg.Jobs) {
		if r := reached[c.agent(j)]; r != nil && config.On(j.Enabled) && j.At.Line > 0 {
			c.warnJob(path+".agent", r)
		}
	}
}

// warnJob warns of a job if its runs can get all three labels. The warning lists the settings that
// bring them.
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

// ownReach returns the label sources of an agent and its jobs, except for its private places.
func (c *checker) ownReach(path string, a *config.Agent) *reach {
	r := &reach{path: path}
	for _, i := range c.jobsOf[string(a.Name)] {
		j, at := &c.cfg.Jobs[i], config.ItemOf("jobs", i)
		if !config.On(j.Enabled) {
			continue
		}
		if j.Watch != nil {
			r.add(untrusted, "a watch", c.d.Place(at+".watch"))
		}
		if j.Webhook != nil {
			r.add(untrusted, "a webhook", c.d.Place(at+".webhook"))
		}
	}

	c.watchedReads(r, a)
	c.serverReach(r, a)
	if len(a.Grants.Network) > 0 && (c.tools == nil || len(c.toolsGiven(tool.RequiresNetwork).Where(a.Tools.Permits)) > 0 || c.offersNetwork(a)) {
		at := c.d.Place(path + ".grants.network")
		r.add(untrusted, "web pages", at)
		r.add(outward, "grants.network", at)
		if !slices.ContainsFunc(a.Grants.Network, config.NetworkGrant.Sends) {
			r.onlyReads++
		}
	}

	for key, g := range config.Each(path+".grants.commands", a.Grants.Commands) {
		at := c.d.Place(key)
		switch {
		case g.Network == "host":
			r.add(untrusted, "commands with network", at)
			r.add(outward, "commands with network", at)
		case a.Sandbox == "off":
			r.add(outward, "commands without a sandbox", at)
		}
	}

	c.executorReach(r, a)
	beyond := c.toolsGiven(tool.RequiresNothing).Where(func(s tool.Spec) bool { return s.Scope == tool.ScopeOutside }).Where(a.Tools.Permits)
	if others := strings.Join(beyond.Names(), ", "); others != "" {
		r.add(untrusted, others, a.At)
		r.add(outward, others, a.At)
	}

	return r
}

// watchedReads adds folders that an agent reads and jobs of any agent watch, because strangers
// leave files there.
func (c *checker) watchedReads(r *reach, a *config.Agent) {
	if len(c.watching) == 0 {
		return
	}

	reads := c.reads(r.path, a)
	for _, j := range c.watching {
		// Disabled jobs count, because files left for them are still there.
		if config.On(j.Enabled) && j.Agent == string(a.Name) {
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

// addPrivate adds the settings that let an agent read private data.
func (c *checker) addPrivate(r *reach, a *config.Agent) {
	for key, g := range config.Each(r.path+".grants.read", a.Grants.Read) {
		if config.On(g.Private) {
			r.add(privateData, "grants.read", c.d.Place(key))
		}
	}
	for key, g := range config.Each(r.path+".grants.secrets", a.Grants.Secrets) {
		if config.On(g.Private) {
			r.add(privateData, "grants.secrets", c.d.Place(key))
		}
	}

	c.executorPrivate(r, a)
	if slices.Contains(a.PrivateFolders, string(a.Workdir)) {
		what := "the workdir"
		if a.Private.Workdir == nil {
			what += ", private by default (private: {workdir: false} if nothing in it is)"
		}
		r.add(privateData, what, c.d.Place(r.path+".private"))
	}
	if a.PrivateDatabase {
		r.add(privateData, "the database", c.d.Place(r.path+".private"))
	}

	for _, folder := range a.PrivateFolders {
		for _, p := range c.reads(r.path, a) {
			if folder != string(a.Workdir) && c.overlap(folder, p.what) {
				r.add(privateData, "reads the private workdir of another agent", p.at)
			}
		}
	}
}

// reads returns the folders that an agent can read, with the positions of the settings.
func (c *checker) reads(path string, a *config.Agent) []source {
	out := []source{{string(a.Workdir), c.d.Place(path + ".workdir")}}
	for key, g := range config.Each(path+".grants.read", a.Grants.Read) {
		out = append(out, source{string(g.Path), c.d.Place(key)})
	}
	for key, p := range config.Each(path+".grants.write", a.Grants.Write) {
		out = append(out, source{string(*p), c.d.Place(key)})
	}
	return out
}

// follow passes a label to each agent that reads where an agent with the label writes. An agent
// that already has the label also gets these sources, because they would remain without its own.
func (c *checker) follow(reached map[*config.Agent]*reach, label int) {
	// Slices by index instead of maps, because every agent is compared with every other.
	own, has := make([]bool, len(c.cfg.Agents)), make([]bool, len(c.cfg.Agents))
	for i := range c.cfg.Agents {
		r := reached[&c.cfg.Agents[i]]
		own[i] = r != nil && len(r.sources[label]) > 0
		has[i] = own[i]
	}

	for grown := slices.Contains(own, true); grown; {
		grown = false
		for i := range c.cfg.Agents { // in order, for a stable result
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

// shared returns the first of places that from can write.
func (c *checker) shared(from *config.Agent, places []source) (source, bool) {
	for _, p := range places {
		if slices.ContainsFunc(from.Writes(), func(folder string) bool { return c.overlap(folder, p.what) }) {
			return p, true
		}
	}
	return source{}, false
}

// overlap reports whether two folders are equal or one is inside the other.
func (c *checker) overlap(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	a, b = c.plainPlace(a), c.plainPlace(b)
	return fspath.Within(a, b) || fspath.Within(b, a)
}

// plainPlace is config.RealPath with a cache.
func (c *checker) plainPlace(path string) string {
	real, ok := c.plain[path]
	if !ok {
		real = config.RealPath(path)
		c.plain[path] = real
	}
	return real
}

// privatePlaces sets which places are private. By default, a workdir is private if the agent has
// untrusted input and a way to send its files out. The database is not, because rows have labels.
func (c *checker) privatePlaces(reached map[*config.Agent]*reach) {
	for a, r := range reached {
		a.PrivateFolders, a.PrivateDatabase = nil, config.On(a.Database.Enabled) && a.Private.Database != nil && *a.Private.Database
		private := len(r.sources[untrusted]) > 0 && (len(r.sources[outward]) > r.onlyReads || c.sending[a])
		if said := a.Private.Workdir; said != nil {
			private = *said
		}
		if private {
			a.PrivateFolders = append(a.PrivateFolders, string(a.Workdir))
		}

		// A folder that its owner declares private is private for all readers.
		for i := range c.cfg.Agents { // also disabled agents, because their files are still there
			if o := &c.cfg.Agents[i]; o != a && o.Private.Workdir != nil && *o.Private.Workdir {
				a.PrivateFolders = append(a.PrivateFolders, string(o.Workdir))
			}
		}
	}
}

// executorReach adds the label sources of an agent's executors.
func (c *checker) executorReach(r *reach, a *config.Agent) {
	for _, e := range config.Executors(c.cfg) {
		if e.Agent != string(a.Name) || e.Network != "host" && a.Sandbox != "off" {
			continue
		}
		at := c.d.Place(e.Path)
		r.add(untrusted, "an executor with network", at)
		r.add(outward, "an executor with network", at)
	}
}

// executorPrivate adds the private sources of an agent's executors.
func (c *checker) executorPrivate(r *reach, a *config.Agent) {
	for _, e := range config.Executors(c.cfg) {
		if e.Agent != string(a.Name) || !config.On(e.Private) {
			continue
		}
		if e.HasSecret {
			r.add(privateData, "executor.env (private: false beside it if it opens nothing private)", c.d.Place(e.Path+".env"))
		}
		if len(e.Login) > 0 {
			r.add(privateData, "executor.login (private: false beside it if it opens nothing private)", c.d.Place(e.Path+".login"))
		}
	}
}

// serverReach adds the label sources of an agent's MCP servers.
func (c *checker) serverReach(r *reach, a *config.Agent) {
	for i, name := range a.MCP {
		configured := config.ServerNamed(c.cfg.MCP, name)
		if configured == nil {
			continue
		}
		s, what, at := configured.Server(), "the MCP server "+name, c.d.Place(config.ItemOf(r.path+".mcp", i))
		r.add(untrusted, what, at)
		if s.IsOutward() {
			r.add(outward, what, at)
		}
		if s.Private {
			r.add(privateData, what, at)
		}
	}
}
