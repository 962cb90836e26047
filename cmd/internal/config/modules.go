package config

import (
	"encoding/json"
	"slices"

	"rouse/agent/plan"
	"rouse/agent/tool/moduleapi"
	"rouse/skills"
)

// Modules are the skills that have a module, by name: those that were found, and those that agents name by path.
func (c *Config) Modules() map[string]*skills.Skill {
	out := map[string]*skills.Skill{}
	add := func(list []*skills.Skill) {
		for _, s := range list {
			if s.Manifest != nil {
				out[s.Name] = s
			}
		}
	}

	for _, a := range c.Agents {
		add(c.skills.given[string(a.Name)])
	}
	add(c.FoundSkills().Catalog().Skills()) // which a name means first
	return out
}

// ModuleOf is the skill that a job of a checked configuration runs; false where it runs none.
func (c *Config) ModuleOf(j *Job) (*skills.Skill, bool) {
	if j.Skill == "" { // as of most jobs
		return nil, false
	}
	s, ok := c.Modules()[j.Skill]
	return s, ok
}

// ModuleSettings are what the owner of each module of a checked configuration says of it, by the name of its skill.
func (c *Config) ModuleSettings() map[string]plan.ModuleSettings {
	out := map[string]plan.ModuleSettings{}
	for name, s := range c.Modules() {
		config, err := c.ModuleConfig(s)
		if err != nil { // no job runs it; who wants to is told
			continue
		}
		out[name] = plan.ModuleSettings{Config: config, Tools: c.Skills.Of(name).Tools}
	}
	return out
}

// ModuleConfig is what a module sees as host.config, nil where it has no settings. The error says what of them is missing or wrong.
func (c *Config) ModuleConfig(s *skills.Skill) (json.RawMessage, error) {
	return moduleapi.Config(s.Dir, c.Skills.Of(s.Name).Config)
}

// Of returns the settings of a skill.
func (s *skillSettings) Of(skill string) (set skillSetting) {
	if s == nil {
		return set
	}
	if i := slices.IndexFunc(s.Settings, func(one skillSetting) bool { return one.Name == skill }); i >= 0 {
		set = s.Settings[i]
	}
	return set
}
