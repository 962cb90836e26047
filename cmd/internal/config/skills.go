package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"

	"rouse/agent"
	"rouse/agent/plan"
	"rouse/internal/fspath"
	"rouse/internal/text"
	"rouse/skills"
	"rouse/skills/install"
)

// skillSettings say where skills are looked for, beside the places where everybody keeps them.
type skillSettings struct {
	Roots    []skillRoot    `key:"roots" say:"folders with skills, beside HOME/skills, ~/.agents/skills and the .agents/skills next to the configuration; of two skills of one name the later one counts"`
	Settings []skillSetting `key:"settings" say:"of skills with a module, one entry for each"`
	// SignInPort is of the loopback address alone.
	SignInPort int `key:"sign_in_port" positive:"yes" say:"port on 127.0.0.1 to which browsers are sent when somebody has signed in for a skill; takes effect with the next start" unset:"any that is free" eg:"7312"`
}

// skillSetting is what the owner of a skill says of its module.
type skillSetting struct {
	Name   string         `key:"name" need:"yes" say:"of the skill" eg:"csv-report"`
	Config map[string]any `key:"config" say:"what its config-schema.json describes; the module sees it as host.config" eg:"{currency: EUR}"`
	Tools  []string       `key:"tools" say:"globs of tools of its agent that the module may call with host.tools.callTool" unset:"none" eg:"[db_query]"`
	// Background has jobs run it that nobody starts, which its manifest says that it is not made for (OSL-16).
	Background bool `key:"background" say:"jobs with a schedule or a watch may run it, though it says that it must not run unattended"`
}

type skillRoot struct {
	Path    Path  `key:"path" need:"yes" say:"the folder" eg:"./skills"`
	Trusted *bool `key:"trusted" default:"true" say:"false: its skills are listed, and loaded when each was trusted with rouse skills trust; a folder that agents can write to is refused"`
}

// found are the skills of a configuration.
type found struct {
	catalog *skills.Catalog
	given   map[string][]*skills.Skill // by agent: those that its prompt holds in full
}

// maxPort is the last port that there is.
const maxPort = 65535

// SignInPort is the port to which browsers are sent when somebody has signed in for a skill; 0 is any.
func (c *Config) SignInPort() int {
	if c.Skills == nil {
		return 0
	}
	return c.Skills.SignInPort
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

// SkillRoots returns the folders with skills, the most important last (AGS-05, AGS-06). Folders of
// the project and of workdirs are not trusted.
func (c *Config) SkillRoots(getenv func(string) string) []skills.Root {
	var out []skills.Root
	if c.Home != "" {
		installed := filepath.Join(string(c.Home), "skills")
		out = append(out, skills.Root{Path: installed, Source: "home", Trusted: true, Tags: install.Tags(installed)})
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

	// One folder can be several of these roots, also by links. The last one counts.
	seen := map[string]bool{}
	slices.Reverse(out)
	out = slices.DeleteFunc(out, func(r skills.Root) bool {
		place := plainPlace(r.Path)
		twice := seen[place]
		seen[place] = true
		return twice
	})
	slices.Reverse(out)
	return out
}

// plainPlace is a path without links where it exists.
func plainPlace(path string) string {
	if _, err := os.Lstat(path); err != nil {
		return filepath.Clean(path) // without a look at each folder on the way
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}

// findSkills looks for the skills of all agents, and says what is wrong with them.
func (c *checker) findSkills() {
	roots := c.cfg.SkillRoots(c.d.Getenv)
	c.skillRoots = slices.Clone(roots)
	trusts, err := install.ReadTrusts(string(c.cfg.Home))
	if err != nil {
		c.bad("home", "%s", err.Error())
	}

	for i, r := range roots {
		// A skill that others can change is never accepted. Writer is called only if there is a skill.
		if !r.Trusted {
			roots[i].Accept, roots[i].Writer = trusts.Accept, sync.OnceValue(func() string { return c.cfg.Writer(r.Path) })
		}

		// Also a root that does not exist yet: when it appears, the configuration is read again.
		c.cfg.Sources.tree(r.Path)
	}

	all := skills.Discover(roots...)
	c.cfg.skills = found{all, map[string][]*skills.Skill{}}
	c.skillProblems(all.Problems(), roots)
	for path, a := range each("agents", c.cfg.Agents) {
		c.skillsOf(path, a)
	}
}

// keepingCalls checks the calls that only agents have whose skills keep workspaces.
func (c *checker) keepingCalls() {
	for _, call := range c.keeping {
		if !slices.ContainsFunc(c.cfg.SkillView(call.agent).All(), (*skills.Skill).KeepsWorkspaces) {
			c.bad(call.path, "no skill of the agent %q keeps workspaces, so it has no %s", call.agent.Name, call.tool).Hint = "give it a skill whose SKILL.md says metadata: {workspace: optional}"
		}
	}
}

// keepingCall is a call of a tool that only agents have whose skills keep workspaces.
type keepingCall struct {
	path, tool string
	agent      *Agent
}

// skillProblems warns of skills that are not loaded, or are hidden by others.
func (c *checker) skillProblems(problems []skills.Problem, roots []skills.Root) {
	// One warning for each root: a cloned repository can hold hundreds of skills.
	untrusted := map[int]int{} // skills by root
	for _, p := range problems {
		switch {
		case p.Rule == skills.RuleUntrusted:
			untrusted[slices.IndexFunc(roots, func(r skills.Root) bool { return !r.Trusted && fspath.Within(p.File, plainPlace(r.Path)) })]++
			continue
		case p.Warning && !slices.Contains([]skills.Rule{skills.RuleChanged, skills.RuleShadowed, skills.RuleLimit, skills.RuleLinkOutside, skills.RuleUnreadable, skills.RuleProgram}, p.Rule):
			continue
		}

		message := p.Words()
		if !p.Warning {
			message = "this skill is not loaded: " + message
		}

		c.d.problem(Position{File: p.File, Line: p.Line, Column: max(p.Column, min(p.Line, 1))}, "", "%s", message).Warning = true
	}

	for i, r := range roots {
		n := untrusted[i]
		if n == 0 {
			continue
		}

		p := c.d.problem(Position{File: r.Path}, "", "the skills here are not loaded (%d found), since whoever can write here could instruct your agents (%s)", n, skills.RuleUntrusted)
		p.Warning, p.Hint = true, "read them, and trust each as it is with: rouse skills trust FOLDER"
		if w := c.cfg.writerOf(r.Path, ""); w != nil {
			p.Message = fmt.Sprintf("the skills here are never loaded (%d found), since %s (%s), and so could instruct your agents (%s)", n, w, c.d.place(w.key), skills.RuleUntrusted)
			p.Hint = w.mend + ", or keep skills of yours elsewhere"
		}
	}
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
	for at, name := range each(path+".skills", a.Skills) {
		if !c.hasNoProblem(at) {
			continue
		}

		if *name == "" {
			c.bad(at, "is empty; write the name of a skill, or the path of its folder")
			continue
		}

		s, ok := c.cfg.skills.catalog.Get(*name)
		if isPath(*name) {
			// Written back: from here on the path does not depend on the file that holds it.
			*name = c.d.resolve(c.d.place(at).File, *name)
			if s, ok = c.skillAt(at, *name); !ok {
				continue
			}
		}

		switch {
		case !ok:
			c.bad(at, "%s", text.NoSuch("skill", *name, names))
		case slices.ContainsFunc(given, func(g *skills.Skill) bool { return strings.EqualFold(g.Name, s.Name) }):
			c.bad(at, "the skill %s is named twice", s.Name)
		default:
			given = append(given, s)
		}
	}

	c.cfg.skills.given[string(a.Name)] = given
	c.warnSkillTools(path, a)
}

// warnSkillTools warns of commands that skills allow too freely, or request in vain (AGS-13).
func (c *checker) warnSkillTools(path string, a *Agent) {
	at := path + ".skill_allowed_tools"
	if !a.SkillTools {
		return
	}

	for _, s := range c.cfg.SkillView(a).All() {
		grants, nothing := plan.SkillCommands(s, agent.Specs())
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
		return s, true
	}

	for _, p := range problems {
		if !p.Warning {
			c.bad(at, "the skill %s cannot be loaded: it %s", display(p.File), p.Words())
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
