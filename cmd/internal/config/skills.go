package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"rouse/agent"
	"rouse/internal/text"
	"rouse/skills"
)

// skillSettings say where skills are looked for, beside the places where everybody keeps them.
type skillSettings struct {
	Roots []skillRoot `key:"roots" say:"folders with skills, beside HOME/skills, ~/.agents/skills and the .agents/skills next to the configuration; of two skills of one name the later one counts"`
}

type skillRoot struct {
	Path    Path  `key:"path" need:"yes"`
	Trusted *bool `key:"trusted" default:"true" say:"false: its skills are listed and not loaded; of a folder that agents can write to, true lets what one writes instruct all"`
}

// found are the skills of a configuration.
type found struct {
	catalog *skills.Catalog
	given   map[string][]*skills.Skill // by agent: those that its prompt holds in full
}

// SkillView is what an agent of a checked configuration sees of skills.
func (c *Config) SkillView(a *Agent) skills.View {
	if c.skills.catalog == nil {
		return skills.View{}
	}
	return c.skills.catalog.View(skills.Access(a.SkillAccess), c.skills.given[string(a.Name)])
}

// SkillCatalog are all skills that were found, without those that an agent names by path.
func (c *Config) SkillCatalog() *skills.Catalog {
	if c.skills.catalog == nil {
		return skills.Discover()
	}
	return c.skills.catalog
}

// SkillRoots are where skills are looked for, the most important last (AGS-05, AGS-06): the
// user's folders, which are trusted; those of the project and of the agents' workdirs, which
// are not; and those that the configuration names, in whose places they stand.
func (c *Config) SkillRoots(getenv func(string) string) []skills.Root {
	var out []skills.Root
	if c.Home != "" {
		out = append(out, skills.Root{Path: filepath.Join(string(c.Home), "skills"), Source: "home", Trusted: true})
	}

	if user, err := userHome(getenv); err == nil {
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
			out = append(out, skills.Root{Path: string(r.Path), Source: display(string(r.Path)), Trusted: On(r.Trusted)})
		}
	}

	// One folder can be several of these roots; links make the paths differ.
	last := map[string]int{} // one place is one root, under what is said of it last
	for i, r := range out {
		last[plainPlace(r.Path)] = i
	}

	kept := out[:0]
	for i, r := range out {
		if last[plainPlace(r.Path)] == i {
			kept = append(kept, r)
		}
	}

	return kept
}

// plainPlace is a path without links where it exists.
func plainPlace(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}

// findSkills looks for the skills of all agents, and says what is wrong with them.
func (c *checker) findSkills() {
	roots := c.cfg.SkillRoots(c.d.getenv)
	for _, r := range roots {
		// Also a root that does not exist yet: when it appears, the configuration is read again.
		c.cfg.Sources.tree(r.Path)
		c.writable(r)
	}

	all := skills.Discover(roots...)
	c.cfg.skills = found{all, map[string][]*skills.Skill{}}
	c.skillProblems(all.Problems(), roots)
	for i := range c.cfg.Agents {
		c.skillsOf(fmt.Sprintf("agents[%d]", i), &c.cfg.Agents[i])
	}
}

// skillProblems warns of skills that are not loaded, or not those that their owner may think.
// What a strict reader would say of one that works is for rouse skills validate.
func (c *checker) skillProblems(problems []skills.Problem, roots []skills.Root) {
	// One warning for each root: a cloned repository can hold hundreds of skills.
	untrusted := map[int]int{} // skills by root
	for _, p := range problems {
		switch {
		case p.Rule == skills.RuleUntrusted:
			untrusted[slices.IndexFunc(roots, func(r skills.Root) bool { return !r.Trusted && within(p.File, plainPlace(r.Path)) })]++
			continue
		case p.Warning && !slices.Contains([]skills.Rule{skills.RuleShadowed, skills.RuleLimit, skills.RuleLinkOutside, skills.RuleUnreadable}, p.Rule):
			continue
		}

		message := fmt.Sprintf("%s (%s)", p.Message, p.Rule)
		if !p.Warning {
			message = "this skill is not loaded: " + message
		}

		c.d.problem(Position{File: p.File, Line: p.Line, Column: max(p.Column, min(p.Line, 1))}, "", "%s", message).Warning = true
	}

	for i, r := range roots {
		if n := untrusted[i]; n > 0 {
			p := c.d.problem(Position{File: r.Path}, "", "the skills here are not loaded (%d found), since whoever can write here could instruct your agents (%s)", n, skills.RuleUntrusted)
			p.Warning, p.Hint = true, "if only you can, name this folder under skills.roots"
		}
	}
}

// within says whether a path is a folder or lies in it.
func within(path, folder string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}

// writable warns of a trusted root in a folder that an agent may write: nothing but the masks of its
// tools keeps it from instructing itself, and all others.
func (c *checker) writable(r skills.Root) {
	if !r.Trusted {
		return
	}
	for _, i := range c.writers(r.Path) {
		c.warn(c.rootPath(r, i), "skills are trusted in %s, where the agent %q could write; its tools change nothing there, and only a program without a sandbox could instruct every agent so", display(r.Path), c.cfg.Agents[i].Name).
			Hint = apartHint
	}
}

const apartHint = "keep skills apart from the folders of agents, or narrow its grants.write"

// writers are the agents that can write in a folder. One to which all of home is open was
// warned of.
func (c *checker) writers(folder string) []int {
	var out []int
	real := plainPlace(folder)
	for i := range c.cfg.Agents {
		a := &c.cfg.Agents[i]
		places := a.Grants.Write
		if len(places) == 0 && a.Workdir != "" {
			places = []Path{a.Workdir}
		}

		if slices.ContainsFunc(places, func(p Path) bool {
			place := plainPlace(string(p))
			// Both directions: a place inside the folder is as bad as one around it.
			return !within(plainPlace(string(c.cfg.Home)), place) && (within(real, place) || within(place, real))
		}) {
			out = append(out, i)
		}
	}

	return out
}

// rootPath is where the configuration speaks of a root, else of the agent that can write there.
func (c *checker) rootPath(r skills.Root, agent int) string {
	if c.cfg.Skills != nil {
		for i, named := range c.cfg.Skills.Roots {
			if string(named.Path) == r.Path {
				return fmt.Sprintf("skills.roots[%d].path", i)
			}
		}
	}
	return fmt.Sprintf("agents[%d]", agent)
}

// skillsOf finds the skills that an agent names, by name or by path (AUT-05).
func (c *checker) skillsOf(path string, a *Agent) {
	if a.SkillAccess == string(skills.AccessNone) && len(a.Skills) > 0 {
		c.bad(path+".skill_access", "is none, and the agent names skills")
		return
	}

	var names []string
	for _, s := range c.cfg.skills.catalog.Skills() {
		names = append(names, s.Name)
	}

	var given []*skills.Skill
	for i, name := range a.Skills {
		at := fmt.Sprintf("%s.skills[%d]", path, i)
		if !c.hasNoProblem(at) {
			continue
		}

		if name == "" {
			c.bad(at, "is empty; write the name of a skill, or the path of its folder")
			continue
		}

		s, ok := c.cfg.skills.catalog.Get(name)
		if isPath(name) {
			// Written back: from here on the path does not depend on the file that holds it.
			a.Skills[i] = c.d.resolve(c.d.place(at).File, name)
			s, ok = c.skillAt(at, a.Skills[i])
			if !ok {
				continue
			}
		}

		switch {
		case !ok:
			c.bad(at, "%s", text.NoSuch("skill", name, names))
		case slices.ContainsFunc(given, func(g *skills.Skill) bool { return strings.EqualFold(g.Name, s.Name) }):
			c.bad(at, "the skill %s is named twice", s.Name)
		default:
			given = append(given, s)
		}
	}

	c.cfg.skills.given[string(a.Name)] = given
	c.warnSkillTools(path, a)
}

// warnSkillTools warns of commands that skills allow an agent with skill_allowed_tools, and of what
// they ask for in vain (AGS-13).
func (c *checker) warnSkillTools(path string, a *Agent) {
	at := path + ".skill_allowed_tools"
	if !a.SkillTools {
		return
	}

	for _, s := range c.cfg.SkillView(a).All() {
		grants, nothing := agent.SkillCommands(s)
		for _, g := range grants {
			if why := grantsEverything(g.Argv); why != "" {
				c.warn(at, "the skill %s allows %s: %s, so that this is any program, within the agent's folders", s.Name, strings.Join(g.Argv, " "), why)
			}
		}

		if len(nothing) > 0 {
			c.warn(at, "of what the skill %s asks for this allows nothing: %s", s.Name, strings.Join(nothing, ", ")).
				Hint = "commands are written as Bash(git log:*) or Bash(make test); grants: allows the rest"
		}
	}
}

// skillAt reads the skill of a path that an agent names.
func (c *checker) skillAt(at, dir string) (*skills.Skill, bool) {
	c.cfg.Sources.tree(dir)
	s, problems := skills.Load(dir)
	if s != nil {
		for _, i := range c.writers(dir) {
			c.warn(at, "the skill %s lies where the agent %q could write; its tools change nothing there, and only a program without a sandbox could change the instructions of who has it", display(dir), c.cfg.Agents[i].Name).Hint = apartHint
		}
		return s, true
	}

	for _, p := range problems {
		if !p.Warning {
			c.bad(at, "the skill %s cannot be loaded: it %s (%s)", display(p.File), p.Message, p.Rule)
		}
	}

	return nil, false
}

// isPath tells the path of a skill from its name.
func isPath(text string) bool {
	return strings.ContainsAny(text, `/\`) || text == "." || text == ".." || strings.HasPrefix(text, "~")
}

// compareSkills names the skills that are new, gone, or say something else of themselves.
func compareSkills(before, after *Config) []string {
	was := map[string]*skills.Skill{}
	for _, s := range before.SkillCatalog().Skills() {
		was[s.Name] = s
	}

	var out []string
	for _, s := range after.SkillCatalog().Skills() {
		if old := was[s.Name]; old == nil || old.Dir != s.Dir || old.Description != s.Description {
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
