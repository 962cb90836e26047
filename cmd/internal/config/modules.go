package config

import (
	"encoding/json"
	"slices"

	"rouse/agent/plan"
	"rouse/agent/tool/moduleapi"
	"rouse/skills"
)

// Modules returns the skills with a module by name, both discovered ones and those that agents
// name by path.
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
	add(c.FoundSkills().Catalog().Skills()) // last, because a discovered skill wins over one named by path
	return out
}

// ModuleOf returns the skill that a job runs, or false if it does not run one. The configuration
// must have been checked.
func (c *Config) ModuleOf(j *Job) (*skills.Skill, bool) {
	if j.Skill == "" { // the common case
		return nil, false
	}
	s, ok := c.Modules()[j.Skill]
	return s, ok
}

// ModuleSettings returns the owner's settings of each module by skill name. The configuration must
// have been checked. It omits modules with invalid settings.
func (c *Config) ModuleSettings() map[string]plan.ModuleSettings {
	out := map[string]plan.ModuleSettings{}
	for name, s := range c.Modules() {
		config, err := c.ModuleConfig(s)
		if err != nil { // no job runs it; running it by hand reports the error
			continue
		}
		out[name] = plan.ModuleSettings{Config: config, Tools: c.Skills.Of(name).Tools}
	}
	return out
}

// ModuleConfig returns the value of host.config for a module, or nil if it has no settings. It
// returns an error if a setting is missing or invalid.
func (c *Config) ModuleConfig(s *skills.Skill) (json.RawMessage, error) {
	return moduleapi.Config(s.Dir, c.Skills.Of(s.Name).Config)
}

// Of returns the settings of a skill, or the zero value if it is not configured.
func (s *skillSettings) Of(skill string) (set skillSetting) {
	if s == nil {
		return set
	}
	if i := slices.IndexFunc(s.Settings, func(one skillSetting) bool { return one.Name == skill }); i >= 0 {
		set = s.Settings[i]
	}
	return set
}
