package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"rouse/skills"
	"rouse/skills/install"
)

// skillSettings configures additional folders with skills and the settings of modules.
type skillSettings struct {
	Roots    []skillRoot    `key:"roots" doc:"folders with skills, beside HOME/skills, ~/.agents/skills and the .agents/skills next to the configuration; of two skills of one name the later one counts"`
	Settings []skillSetting `key:"settings" doc:"of skills with a module, one entry for each"`
	// SignInPort is a port of the loopback address only.
	SignInPort int `key:"sign_in_port" positive:"yes" doc:"port on 127.0.0.1 to which browsers are sent when somebody has signed in for a skill; takes effect with the next start" defaultdoc:"any that is free" example:"7312"`
}

// skillSetting is the owner's configuration of a skill's module.
type skillSetting struct {
	Name   string         `key:"name" required:"yes" doc:"of the skill" example:"csv-report"`
	Config map[string]any `key:"config" doc:"what its config-schema.json describes; the module sees it as host.config" example:"{currency: EUR}"`
	Tools  []string       `key:"tools" doc:"globs of tools of its agent that the module may call with host.tools.callTool" defaultdoc:"none" example:"[db_query]"`
	// Background allows jobs with a schedule or a watch to run the module, even if its manifest
	// does not allow unattended runs.
	Background bool `key:"background" doc:"jobs with a schedule or a watch may run it, though it says that it must not run unattended"`
}

type skillRoot struct {
	Path    Path  `key:"path" required:"yes" doc:"the folder" example:"./skills"`
	Trusted *bool `key:"trusted" default:"true" doc:"false: its skills are listed, and loaded when each was trusted with rouse skills trust; a folder that agents can write to is refused"`
}

// FoundSkills holds the skills found for a configuration.
type FoundSkills struct {
	catalog *skills.Catalog
	given   map[string][]*skills.Skill // by agent: skills that its prompt contains in full
}

// Port returns the port for the redirect after a sign-in for a skill. Zero means any free port.
func (s *skillSettings) Port() int {
	if s == nil {
		return 0
	}
	return s.SignInPort
}

// FoundSkills returns the skills that the check of the configuration found.
func (c *Config) FoundSkills() *FoundSkills { return &c.skills }

// View returns the skills that an agent can use.
func (f *FoundSkills) View(a *Agent) skills.View {
	if f.catalog == nil {
		return skills.View{}
	}
	return f.catalog.View(skills.Access(a.SkillAccess), f.given[string(a.Name)])
}

// Set replaces the discovered skills and forgets those given to agents.
func (f *FoundSkills) Set(catalog *skills.Catalog) {
	*f = FoundSkills{catalog, map[string][]*skills.Skill{}}
}

// Give sets the skills that an agent names.
func (f *FoundSkills) Give(a *Agent, given []*skills.Skill) { f.given[string(a.Name)] = given }

// Given returns the skills that an agent names.
func (f *FoundSkills) Given(a *Agent) []*skills.Skill { return f.given[string(a.Name)] }

// Catalog returns all discovered skills, without those that an agent names by path.
func (f *FoundSkills) Catalog() *skills.Catalog {
	if f.catalog == nil {
		return skills.Discover()
	}
	return f.catalog
}

// SkillRoots returns the folders with skills in order of rising precedence. Folders of the project
// and of workdirs are not trusted.
func (c *Config) SkillRoots(getenv func(string) string) []skills.Root {
	var out []skills.Root
	if c.Home != "" {
		installed := filepath.Join(string(c.Home), "skills")
		out = append(out, skills.Root{Path: installed, Source: "home", Trusted: true, Tags: install.Tags(installed)})
	}

	if user, err := UserHome(getenv); err == nil {
		out = append(out, skills.Root{Path: filepath.Join(user, ".agents", "skills"), Source: "user", Trusted: true})
	}

	if len(c.Files) > 0 {
		out = append(out, skills.Root{Path: filepath.Join(filepath.Dir(c.Files[0]), ".agents", "skills"), Source: "project"})
	}

	for _, a := range c.Agents {
		if a.Workdir != "" {
			out = append(out, skills.Root{Path: filepath.Join(string(a.Workdir), ".agents", "skills"), Source: "workdir of " + string(a.Name)})
		}
	}

	if c.Skills != nil {
		for _, r := range c.Skills.Roots {
			out = append(out, skills.Root{Path: string(r.Path), Source: Display(string(r.Path)), Trusted: On(r.Trusted)})
		}
	}

	// Several roots can be the same folder, for example through links. Keep the last one.
	seen := map[string]bool{}
	slices.Reverse(out)
	out = slices.DeleteFunc(out, func(r skills.Root) bool {
		place := RealPath(r.Path)
		twice := seen[place]
		seen[place] = true
		return twice
	})
	slices.Reverse(out)
	return out
}

// RealPath resolves the links of path if it exists. Otherwise it returns the cleaned path.
func RealPath(path string) string {
	if _, err := os.Lstat(path); err != nil {
		return filepath.Clean(path) // skips the lookup of each parent folder
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}

// compareSkills returns the skills that were added, removed or changed.
func compareSkills(before, after *Config) []string {
	was := map[string]*skills.Skill{}
	for _, s := range before.FoundSkills().Catalog().Skills() {
		was[s.Name] = s
	}

	var out []string
	for _, s := range after.FoundSkills().Catalog().Skills() {
		if old := was[s.Name]; old == nil || old.Dir != s.Dir || old.Description != s.Description || !reflect.DeepEqual(old.Manifest, s.Manifest) {
			out = append(out, "skill "+s.Name)
		}
		delete(was, s.Name)
	}

	for name := range was {
		out = append(out, "skill "+name)
	}

	slices.Sort(out)
	return out
}
