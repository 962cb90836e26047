package check

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"rouse/agent"
	"rouse/agent/plan"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/places"
	"rouse/internal/fspath"
	"rouse/internal/text"
	"rouse/skills"
	"rouse/skills/install"
)

// maxPort is the highest port number.
const maxPort = 65535

// findSkills discovers the skills of all agents and reports their problems.
func (c *checker) findSkills() {
	roots := c.cfg.SkillRoots(c.d.Getenv)
	c.skillRoots = slices.Clone(roots)
	trusts, err := install.ReadTrusts(string(c.cfg.Home))
	if err != nil {
		c.bad("home", "%s", err.Error())
	}

	for i, r := range roots {
		// Skills that others can change are never accepted. Writer is called only if a skill was
		// found.
		if !r.Trusted {
			roots[i].Accept, roots[i].Writer = trusts.Accept, sync.OnceValue(func() string { return places.Writer(c.cfg, r.Path) })
		}

		// Record missing roots too: the configuration is read again when one appears.
		c.cfg.Sources.Tree(r.Path)
	}

	all := skills.Discover(roots...)
	c.cfg.FoundSkills().Set(all)
	c.skillProblems(all.Problems(), roots)
	for path, a := range config.Each("agents", c.cfg.Agents) {
		c.skillsOf(path, a)
	}
}

// keepingCalls checks the calls of tools that require a skill with workspaces.
func (c *checker) keepingCalls() {
	for _, call := range c.keeping {
		if !slices.ContainsFunc(c.cfg.FoundSkills().View(call.agent).All(), (*skills.Skill).KeepsWorkspaces) {
			c.bad(call.path, "no skill of the agent %q keeps workspaces, so it has no %s", call.agent.Name, call.tool).Hint = "give it a skill whose SKILL.md says metadata: {workspace: optional}"
		}
	}
}

// keepingCall is a call of a tool that requires a skill with workspaces.
type keepingCall struct {
	path, tool string
	agent      *config.Agent
}

// skillProblems warns of skills that are not loaded or are hidden by others.
func (c *checker) skillProblems(problems []skills.Problem, roots []skills.Root) {
	// Report one warning per root, because a cloned repository can contain hundreds of skills.
	untrusted := map[int]int{} // number of skills by root
	for _, p := range problems {
		switch {
		case p.Rule == skills.RuleUntrusted:
			untrusted[slices.IndexFunc(roots, func(r skills.Root) bool { return !r.Trusted && fspath.Within(p.File, config.RealPath(r.Path)) })]++
			continue
		case p.Warning && !slices.Contains([]skills.Rule{skills.RuleChanged, skills.RuleShadowed, skills.RuleLimit, skills.RuleLinkOutside, skills.RuleUnreadable, skills.RuleProgram}, p.Rule):
			continue
		}

		message := p.Words()
		if !p.Warning {
			message = "this skill is not loaded: " + message
		}

		c.d.Problem(config.Position{File: p.File, Line: p.Line, Column: max(p.Column, min(p.Line, 1))}, "", "%s", message).Warning = true
	}

	for i, r := range roots {
		n := untrusted[i]
		if n == 0 {
			continue
		}

		p := c.d.Problem(config.Position{File: r.Path}, "", "the skills here are not loaded (%d found), since whoever can write here could instruct your agents (%s)", n, skills.RuleUntrusted)
		p.Warning, p.Hint = true, "read them, and trust each as it is with: rouse skills trust FOLDER"
		if w := places.FindWriter(c.cfg, r.Path, ""); w != nil {
			p.Message = fmt.Sprintf("the skills here are never loaded (%d found), since %s (%s), and so could instruct your agents (%s)", n, w, c.d.Place(w.Key), skills.RuleUntrusted)
			p.Hint = w.Mend + ", or keep skills of yours elsewhere"
		}
	}
}

// skillsOf finds the skills that an agent names, by name or by path.
func (c *checker) skillsOf(path string, a *config.Agent) {
	if a.SkillAccess == string(skills.AccessNone) && len(a.Skills) > 0 {
		c.bad(path+".skill_access", "is none, and the agent names skills")
		return
	}

	var names []string
	for _, s := range c.cfg.FoundSkills().Catalog().Skills() {
		names = append(names, s.Name)
	}

	var given []*skills.Skill
	for at, name := range config.Each(path+".skills", a.Skills) {
		if !c.hasNoProblem(at) {
			continue
		}

		if *name == "" {
			c.bad(at, "is empty; write the name of a skill, or the path of its folder")
			continue
		}

		s, ok := c.cfg.FoundSkills().Catalog().Get(*name)
		if isPath(*name) {
			// Store the absolute path, which does not depend on the file that contains it.
			*name = c.d.Resolve(c.d.Place(at).File, *name)
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

	c.cfg.FoundSkills().Give(a, given)
	c.warnSkillTools(path, a)
}

// warnSkillTools warns of commands that skills allow too freely or request in vain.
func (c *checker) warnSkillTools(path string, a *config.Agent) {
	at := path + ".skill_allowed_tools"
	if !a.SkillTools {
		return
	}

	for _, s := range c.cfg.FoundSkills().View(a).All() {
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

// skillAt loads a skill that an agent names by path.
func (c *checker) skillAt(at, dir string) (*skills.Skill, bool) {
	c.cfg.Sources.Tree(dir)
	s, problems := skills.Load(dir)
	if s != nil {
		return s, true
	}

	for _, p := range problems {
		if !p.Warning {
			c.bad(at, "the skill %s cannot be loaded: it %s", config.Display(p.File), p.Words())
		}
	}
	return nil, false
}

// isPath reports whether text is the path of a skill, not its name.
func isPath(text string) bool {
	return strings.ContainsAny(text, `/\`) || text == "." || text == ".." || strings.HasPrefix(text, "~")
}
