package check

import (
	"maps"
	"runtime"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/agent/tool/moduleapi"
	"rouse/agent/tool/shell"
	"rouse/agent/tool/web"
	"rouse/cmd/internal/config"
	"rouse/internal/text"
	"rouse/skills"
)

// moduleSettings checks the owner's settings of modules against their schemas.
func (c *checker) moduleSettings() {
	modules := c.cfg.Modules()
	set := map[string]bool{}
	if c.cfg.Skills.Port() > maxPort {
		c.bad("skills.sign_in_port", "%d is no port; the last is %d", c.cfg.Skills.Port(), maxPort)
	}
	if c.cfg.Skills != nil {
		for at, one := range config.Each("skills.settings", c.cfg.Skills.Settings) {
			s, ok := modules[one.Name]
			switch {
			case one.Name == "":
				continue // this was reported
			case !ok:
				c.bad(at+".name", "%s", text.NoSuch("skill with a module", one.Name, slices.Sorted(maps.Keys(modules))))
				continue
			case set[one.Name]:
				c.bad(at+".name", "the skill %s has settings above", one.Name)
				continue
			}

			set[one.Name] = true
			for at, glob := range config.Each(at+".tools", one.Tools) {
				c.toolGlob(at, *glob)
			}
			if _, err := moduleapi.Config(s.Dir, one.Config); err != nil {
				c.bad(at+".config", "does not fit the config-schema.json of the skill %s: %v", s.Name, err)
			}
		}
	}

	// Report required settings that are missing.
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		if _, err := c.cfg.ModuleConfig(modules[name]); err != nil && !set[name] && c.runs(name) {
			c.bad("skills", "the skill %s needs settings: %v", name, err).Hint = "give them as skills: {settings: [{name: " + name + ", config: {…}}]}"
		}
	}
}

// runs reports whether a job or an agent can run the module of a skill.
func (c *checker) runs(skill string) bool {
	return slices.ContainsFunc(c.cfg.Jobs, func(j config.Job) bool { return j.Skill == skill }) || c.named(skill)
}

// module checks a job that runs the module of a skill, and its input.
func (c *checker) module(path string, j *config.Job, by *config.Agent) {
	at := path + ".skill"
	if s, ok := c.cfg.FoundSkills().Catalog().Get(j.Skill); ok && s.Manifest == nil {
		c.bad(at, "the skill %s has no module: it tells a model how to do something", s.Name).Hint = "name it under skills of the agent, and use a prompt"
		return
	}
	s, ok := c.cfg.ModuleOf(j)
	if !ok {
		c.bad(at, "%s", text.NoSuch("skill with a module", j.Skill, slices.Sorted(maps.Keys(c.cfg.Modules()))))
		return
	}

	m := s.Manifest
	if !m.Supports(runtime.GOOS) {
		c.bad(at, "the skill %s is not for %s", s.Name, runtime.GOOS)
	}
	for _, what := range moduleapi.Missing(m) {
		c.bad(at, "the skill %s asks for %s, which is not available in this version", s.Name, what)
	}
	if _, err := s.WASMCode(); err != nil {
		c.bad(at, "%v", err)
	}
	if by != nil {
		needed, wanted := moduleapi.Ungranted(m, c.capabilities(by, j.Model != ""), by.SecretNames())
		for _, what := range needed {
			c.bad(at, "the skill %s needs %s", s.Name, what)
		}
		for _, what := range wanted {
			c.warn(at, "the skill %s asks for %s", s.Name, what)
		}
		for _, why := range moduleapi.Unreachable(m, web.Options{Grants: by.Network(), Secrets: by.Secrets()}) {
			c.warn(at, "the skill %s could not sign in: %s", s.Name, why)
		}
	}

	c.arguments(path+".input", tool.Spec{Name: s.Name, Schema: m.InputSchema}, j.Input)
	c.moduleWorkspace(path, s, j)
	c.moduleUnattended(path, s, j)
}

// moduleWorkspace checks that a job has a workspace if its skill requires one. It refuses a
// workspace if the skill does not support them.
func (c *checker) moduleWorkspace(path string, s *skills.Skill, j *config.Job) {
	m := s.Manifest
	switch {
	case j.Workspace != "" && !moduleapi.KeepsWorkspace(m):
		c.bad(path+".workspace", "the skill %s keeps no workspaces", s.Name)
	case j.Workspace == "" && m.WorkspaceSupport == skills.SupportRequired:
		c.bad(path+".skill", "the skill %s works in a workspace, and the job names none", s.Name).Hint = "name one: workspace: " + string(j.Name)
	case j.Workspace == "" && m.LongRunningSupport == skills.SupportRequired:
		c.bad(path+".skill", "the skill %s has runs that go on for long, for which it needs a workspace, and the job names none", s.Name).Hint = "name one: workspace: " + string(j.Name)
	}
}

// moduleUnattended refuses an automatic trigger for a skill that must not run unattended.
func (c *checker) moduleUnattended(path string, s *skills.Skill, j *config.Job) {
	a := s.Manifest.AgenticConfig
	if a == nil || !a.Enabled || a.SupportsBackgroundExecution || c.cfg.Skills.Of(s.Name).Background {
		return
	}
	for _, trigger := range []string{"schedule", "every", "at", "window", "watch", "webhook", "after", "run_on_start"} {
		if c.d.Given(path + "." + trigger) {
			c.bad(path+"."+trigger, "the skill %s says that it must not run unattended (agenticConfig.supportsBackgroundExecution)", s.Name).Hint =
				"leave the trigger out, and start the job with rouse run " + string(j.Name) + "; or take that upon yourself: skills: {settings: [{name: " + s.Name + ", background: true}]}"
			return
		}
	}
}

// capabilities returns the capabilities that an agent provides for a module. If model is true, a
// model is available in any case.
func (c *checker) capabilities(by *config.Agent, model bool) moduleapi.Capabilities {
	has := func(name string) bool {
		s := c.tools.Find(name)
		why, _ := c.lacks(by, s)
		return c.tools == nil || why == "" && by.Tools.Permits(s)
	}
	return moduleapi.Capabilities{Network: len(by.Grants.Network) > 0, Model: model || by.Model != "", Commands: has(shell.RunName()), Writing: has(file.WriteName()), SignIns: true, Servers: by.MCP}
}

// findOffers finds the tools that skills offer to agents, and warns of missing ones.
func (c *checker) findOffers() {
	c.offered = map[*config.Agent]tool.Specs{}
	if c.tools == nil { // without a list of tools, names are not checked
		return
	}

	c.tools = slices.Clone(c.tools)
	for _, s := range c.cfg.Modules() {
		c.tools = append(c.tools, moduleapi.OfferSpecs(s)...)
	}
	c.tools = append(c.tools, c.serverSpecs()...)

	for key, a := range config.Each("agents", c.cfg.Agents) {
		for _, s := range c.cfg.FoundSkills().View(a).All() {
			if s.Manifest == nil {
				continue
			}

			lacks := c.lacksForOffers(a, s)
			if len(lacks) == 0 {
				c.offered[a] = append(c.offered[a], moduleapi.OfferSpecs(s)...)
			}
			_, unfit := moduleapi.Offers(s)
			for at, name := range config.Each(key+".skills", a.Skills) {
				if strings.EqualFold(*name, s.Name) || isPath(*name) && config.RealPath(*name) == s.Dir {
					c.warnOffers(at, s, append(lacks, unfit...))
				}
			}
		}
	}
}

// lacksForOffers returns the reasons why an agent lacks the tools of a skill.
func (c *checker) lacksForOffers(a *config.Agent, s *skills.Skill) (out []string) {
	if !s.Manifest.Supports(runtime.GOOS) {
		out = append(out, "it is not for "+runtime.GOOS)
	}
	for _, what := range moduleapi.Missing(s.Manifest) {
		out = append(out, "it asks for "+what+", which is not available in this version")
	}
	needed, _ := moduleapi.Ungranted(s.Manifest, c.capabilities(a, false), a.SecretNames())
	for _, what := range needed {
		out = append(out, "it needs "+what)
	}
	return out
}

func (c *checker) warnOffers(at string, s *skills.Skill, why []string) {
	for _, one := range why {
		c.warn(at, "of the tools that the skill %s has for models some are not there: %s", s.Name, one)
	}
}

func (c *checker) offers(a *config.Agent, name string) bool {
	return c.offered[a].Find(name).Name != ""
}

// named reports whether an agent names a skill and has its tools.
func (c *checker) named(skill string) bool {
	for i := range c.cfg.Agents {
		a := &c.cfg.Agents[i]
		given := slices.ContainsFunc(c.cfg.FoundSkills().Given(a), func(s *skills.Skill) bool { return s.Name == skill })
		if given && c.offers(a, moduleapi.ExecuteName(skill)) {
			return true
		}
	}
	return false
}

// specOf returns a tool as the agent has it. Skills with the same name can differ between agents.
func (c *checker) specOf(name string, a *config.Agent) tool.Spec {
	if s := c.offered[a].Find(name); s.Name != "" {
		return s
	}
	return c.tools.Find(name)
}

// mayBeRegistered reports whether a pattern may match tools of a skill that only its module knows.
func (c *checker) mayBeRegistered(glob string) bool {
	return slices.ContainsFunc(c.tools, func(s tool.Spec) bool { return s.Open && strings.HasPrefix(glob, s.Name) })
}

// offersNetwork reports whether the agent may call a tool of a skill that sends network requests.
func (c *checker) offersNetwork(a *config.Agent) bool {
	return slices.ContainsFunc(c.cfg.FoundSkills().View(a).All(), func(s *skills.Skill) bool {
		return s.Manifest != nil && moduleapi.UsesNetwork(s.Manifest) && c.offers(a, moduleapi.ExecuteName(s.Name)) && len(moduleapi.OfferSpecs(s).Where(a.Tools.Permits)) > 0
	})
}
