package config

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/agent/tool/host"
	"rouse/skills"
)

// findOffers finds the tools that skills offer to agents (OSL-32), so that lists of tools and playbooks can name them. An agent that
// names a skill is told why it has none of its tools, or not all.
func (c *checker) findOffers() {
	c.offered = map[*Agent]tool.Specs{}
	if c.tools == nil { // callers that pass no list of tools leave the names unchecked
		return
	}

	c.tools = slices.Clone(c.tools)
	for _, s := range c.cfg.Modules() {
		c.tools = append(c.tools, host.OfferSpecs(s)...)
	}
	c.tools = append(c.tools, c.serverSpecs()...)

	for i := range c.cfg.Agents {
		a := &c.cfg.Agents[i]
		view := c.cfg.SkillView(a)
		for _, s := range view.All() {
			if s.Manifest == nil {
				continue
			}

			lacks := c.lacksForOffers(a, s)
			if len(lacks) == 0 {
				c.offered[a] = append(c.offered[a], host.OfferSpecs(s)...)
			}
			_, unfit := host.Offers(s)
			if at, named := c.namedAt(i, s); named {
				c.warnOffers(at, s, append(lacks, unfit...))
			}
		}
	}
}

// lacksForOffers says what keeps an agent from the tools of a skill.
func (c *checker) lacksForOffers(a *Agent, s *skills.Skill) (out []string) {
	if !s.Manifest.Supports(runtime.GOOS) {
		out = append(out, "it is not for "+runtime.GOOS)
	}
	for _, what := range host.Missing(s.Manifest) {
		out = append(out, "it asks for "+what+", which is not available in this version")
	}
	needed, _ := host.Ungranted(s.Manifest, c.capabilities(a, false), a.secretNames())
	for _, what := range needed {
		out = append(out, "it needs "+what)
	}
	return out
}

// namedAt is where an agent names a skill; false where it does not.
func (c *checker) namedAt(agent int, s *skills.Skill) (string, bool) {
	a := c.cfg.Agents[agent]
	at := slices.IndexFunc(a.Skills, func(name string) bool {
		return strings.EqualFold(name, s.Name) || isPath(name) && plainPlace(name) == s.Dir
	})
	return fmt.Sprintf("agents[%d].skills[%d]", agent, at), at >= 0
}

func (c *checker) warnOffers(at string, s *skills.Skill, why []string) {
	for _, one := range why {
		c.warn(at, "of the tools that the skill %s has for models some are not there: %s", s.Name, one)
	}
}

// offers says whether the skills of an agent offer a tool.
func (c *checker) offers(a *Agent, name string) bool { return c.offered[a].Find(name).Name != "" }

// named says whether an agent names a skill, and has its tools.
func (c *checker) named(skill string) bool {
	for i := range c.cfg.Agents {
		a := &c.cfg.Agents[i]
		given := slices.ContainsFunc(c.cfg.skills.given[string(a.Name)], func(s *skills.Skill) bool { return s.Name == skill })
		if given && c.offers(a, host.ExecuteName(skill)) {
			return true
		}
	}
	return false
}

// specOf is what is known of a tool for an agent: two agents may have different skills of one name.
func (c *checker) specOf(name string, a *Agent) tool.Spec {
	if s := c.offered[a].Find(name); s.Name != "" {
		return s
	}
	return c.tools.Find(name)
}

// mayBeRegistered says whether a pattern is about tools of a skill that only its module knows.
func (c *checker) mayBeRegistered(glob string) bool {
	return slices.ContainsFunc(c.tools, func(s tool.Spec) bool { return s.Open && strings.HasPrefix(glob, s.Name) })
}

// offersNetwork says whether a tool of a skill that the agent may call asks servers.
func (c *checker) offersNetwork(a *Agent) bool {
	return slices.ContainsFunc(c.cfg.SkillView(a).All(), func(s *skills.Skill) bool {
		return s.Manifest != nil && host.UsesNetwork(s.Manifest) && c.offers(a, host.ExecuteName(s.Name)) && len(host.OfferSpecs(s).Where(a.Tools.permits)) > 0
	})
}
