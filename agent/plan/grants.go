package plan

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/agent/tool/executor"
	"rouse/agent/tool/git"
	"rouse/agent/tool/mcp"
	"rouse/agent/tool/moduleapi"
	"rouse/agent/tool/shell"
	"rouse/skills"
)

// ProgramUses describes the ways in which the runs of a task can start confined programs.
type ProgramUses struct {
	// Labelled needs tier A once the run holds untrusted content, unless min_tier is set.
	Labelled []string
	Others   []string
}

func (u ProgramUses) All() []string { return slices.Concat(u.Labelled, u.Others) }

func (t *Task) ProgramUses() (out ProgramUses) {
	if t.Agent.Unconfined != "" {
		return out
	}

	if t.Executes() {
		out.Labelled = append(out.Labelled, "its executor")
	} else {
		if t.CanCall(tool.RequiresCommands) {
			out.Labelled = append(out.Labelled, "its commands")
		}
		if t.CanCall(tool.RequiresRepository) {
			out.Labelled = append(out.Labelled, "its git tools")
		}
		for _, s := range t.Agent.Servers {
			if len(s.Argv) > 0 && t.canCallServer(s.Name) {
				out.Labelled = append(out.Labelled, "the MCP server "+s.Name)
			}
		}
	}
	if slices.ContainsFunc(t.Job.Expect, func(e Expectation) bool { return len(e.Command) > 0 }) {
		out.Labelled = append(out.Labelled, "the command that it expects (expect)")
	}
	// Conditions are checked before the run can read untrusted content.
	if slices.ContainsFunc(t.Job.When, func(c Condition) bool { return len(c.Command) > 0 && c.Unconfined == "" }) {
		out.Others = append(out.Others, "the command of its condition (when)")
	}
	return out
}

// CanCall reports whether a run of the task can call a tool with a requirement.
func (t *Task) CanCall(with tool.Requirement) bool {
	called := t.CalledTools()
	return slices.ContainsFunc(t.Plan.Specs, func(s tool.Spec) bool {
		switch {
		case s.Requires != with || !t.Given(s) || !tool.IsAllowed(t.Agent.Allow, t.Agent.Deny, s.Name):
			return false
		case t.Job.Playbook != nil:
			return slices.Contains(called, s.Name)
		case t.Job.Skill != nil:
			return with == tool.RequiresCommands && moduleapi.UsesCommands(t.Job.Skill.Manifest) || len(t.ModuleSettings.Tools) > 0 && tool.IsAllowed(t.ModuleSettings.Tools, nil, s.Name)
		}
		return true
	})
}

// canCallServer reports whether a run of the task can call a tool of an MCP server.
func (t *Task) canCallServer(name string) bool {
	if t.Job.Playbook == nil {
		return t.UsesServers()
	}
	return slices.ContainsFunc(t.CalledTools(), func(called string) bool {
		server, _, ok := mcp.SplitName(called)
		return ok && server == name
	})
}

// BlocksWeak reports whether min_tier makes runs of the task wait for a stronger sandbox.
func (t *Task) BlocksWeak() bool {
	return t.MinTier() != "" && t.MinTier() != "D"
}

// UsesSystem describes a resource of the task outside the agent's own files and database, or
// returns "" if there is none.
func (t *Task) UsesSystem(specs tool.Specs) string {
	switch a := t.Agent; {
	case slices.ContainsFunc(t.Job.Expect, func(e Expectation) bool { return len(e.Command) > 0 }):
		return "commands that check its work"
	case t.Checkout() != nil:
		return "a repository of yours"
	case slices.ContainsFunc(t.Job.When, func(g Condition) bool { return len(g.Command) > 0 }):
		return "commands in its conditions"
	case a.Unconfined != "":
		return "programs without confinement"
	case t.Executes():
		return "an agent program"
	case len(a.Commands) > 0:
		return "programs"
	case len(t.SkillsAllowingCommands()) > 0:
		return "programs that skills allow"
	case len(a.Network) > 0:
		return "the network"
	case len(a.Servers) > 0:
		return "MCP servers"
	case len(a.Secrets) > 0:
		return "secrets"
	}

	outside := specs.Where(func(s tool.Spec) bool { return s.Scope == tool.ScopeOutside })
	for _, glob := range t.Agent.Allow {
		for _, s := range outside {
			if tool.IsNamed([]string{glob}, s.Name) {
				return s.Name
			}
		}
	}

	ungranted := []tool.Requirement{tool.RequiresNothing, tool.RequiresRepository}
	for _, s := range outside {
		if slices.Contains(ungranted, s.Requires) && t.Given(s) && tool.IsAllowed(t.Agent.Allow, t.Agent.Deny, s.Name) {
			return s.Name
		}
	}

	return ""
}

// Given reports whether a run of the task will have a tool. Before a run starts, the tools that
// modules provide are unknown.
func (t *Task) Given(s tool.Spec) bool {
	if t.Agent.Mode == ModeNone && t.Plan.HostTools.Find(s.Name).Name != "" {
		return false
	}

	named := tool.IsNamed(t.Agent.Allow, s.Name)
	if s.AliasOf != "" {
		return named
	}

	switch s.Requires {
	case tool.RequiresNothing:
		return true
	case tool.RequiresModel:
		return t.NeedsModel()
	case tool.RequiresServer:
		server, _, ok := mcp.SplitName(s.Name)
		return ok && slices.Contains(t.Agent.ServerNames(), server)
	case tool.RequiresDatabase:
		return t.Agent.Database
	case tool.RequiresSelfScheduling:
		return t.Agent.SelfScheduling != nil
	case tool.RequiresNetwork:
		return len(t.Agent.Network) > 0
	case tool.RequiresCommands:
		return named || len(t.Agent.Commands) > 0 || len(t.SkillsAllowingCommands()) > 0
	case tool.RequiresWorkspaces:
		return len(t.WorkspaceSkills()) > 0
	case tool.RequiresRepository:
		return named || git.Repository(t.Agent.Workdir)
	}

	return false
}

// ownerAddress matches a URL in the owner's texts.
var ownerAddress = regexp.MustCompile(`(https?://[^\s"'<>()\[\]{}]+[^\s"'<>()\[\]{}.,;:!?])(\{?)`)

// OwnersAddresses returns the URLs in the configuration of an agent and its job. It ignores texts
// of wakes and requests.
func (t *Task) OwnersAddresses() []string {
	words := t.Agent.Instructions
	if t.Job.Where != "" && t.Detail.Wake == nil && t.Detail.Prompt == "" {
		words += "\n" + t.Job.Prompt
		for _, c := range t.Job.Playbook {
			if url, ok := c.With["url"].(string); ok && !strings.Contains(url, "{{") {
				words += "\n" + url
			}
		}
	}

	var out []string
	for _, found := range ownerAddress.FindAllStringSubmatch(words, -1) {
		if found[2] == "" { // skip a URL that a template extends with data of the run
			out = append(out, found[1])
		}
	}
	return out
}

func (t *Task) WorkspaceSkills() []string {
	var out []string
	for _, s := range t.Agent.Skills.All() {
		if s.KeepsWorkspaces() {
			out = append(out, s.Name)
		}
	}
	return out
}

// SkillCommands returns the commands that the allowed-tools of a skill allow, and the patterns that
// allow nothing. Bash(git log:*) and Bash(git log *) allow any further arguments. A path refers to
// a file of the skill if it exists there.
func SkillCommands(s *skills.Skill, specs tool.Specs) (grants []shell.Grant, nothing []string) {
	if len(s.AllowedTools) == 0 {
		return nil, nil
	}

	for _, pattern := range s.AllowedTools {
		name, inner, _ := strings.Cut(strings.TrimSuffix(pattern, ")"), "(")
		name = strings.ToLower(name)
		spec := specs.Find(name)
		switch {
		case slices.Contains(foreignToolsAllowed, name), spec.Scope != tool.ScopeOutside:
		case (slices.Contains(shellToolNames, name) || spec.Requires == tool.RequiresCommands) && strings.HasSuffix(pattern, ")"):
			for one := range strings.SplitSeq(inner, ",") {
				if g, ok := skillCommand(s, strings.TrimSpace(one)); ok {
					grants = append(grants, g)
				} else {
					nothing = append(nothing, pattern)
				}
			}
		default:
			nothing = append(nothing, pattern)
		}
	}

	return grants, slices.Compact(nothing)
}

func skillCommand(s *skills.Skill, text string) (g shell.Grant, ok bool) {
	if prefix, open := strings.CutSuffix(text, ":*"); open {
		text = prefix + " *"
	}
	if strings.ContainsAny(text, "\"'$`|&;<>(){}\\~#!?[]") {
		return g, false
	}

	words := strings.Fields(text)
	for i, word := range words {
		if strings.Contains(word, "*") && (word != "*" || i != len(words)-1) {
			return g, false
		}
		if words[i] = ofSkill(s, word); words[i] != word && strings.ContainsAny(words[i], "*?[") {
			return g, false // the path of its folder would act as a pattern
		}
	}

	g = shell.Grant{Argv: words}
	return g, len(words) > 0 && words[0] != "*" && g.Check() == nil
}

// ofSkill returns the path of the skill's file that a word names, or the word if there is no such
// file.
func ofSkill(s *skills.Skill, word string) string {
	if !strings.Contains(word, "/") || !filepath.IsLocal(filepath.FromSlash(word)) {
		return word
	}

	path := filepath.Join(s.Dir, filepath.FromSlash(word))
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return word
	}
	return path
}

type SkillGrant struct {
	*skills.Skill
	Grants []shell.Grant
}

// SkillsAllowingCommands returns the skills that can allow commands to the model of a task.
func (t *Task) SkillsAllowingCommands() (out []SkillGrant) {
	if !t.Agent.Skills.Allowing || !t.NeedsModel() {
		return nil
	}

	for _, s := range t.Agent.Skills.All() {
		if grants, _ := SkillCommands(s, t.Plan.Specs); len(grants) > 0 {
			out = append(out, SkillGrant{s, grants})
		}
	}
	return out
}

// shellToolNames and foreignToolsAllowed are tool names of other agents in allowed-tools. Tools in
// foreignToolsAllowed need no permission here.
var (
	shellToolNames      = []string{"bash", "shell"}
	foreignToolsAllowed = strings.Fields("read write edit multiedit glob grep ls notebookread notebookedit task todowrite todoread skill")
)

// LocateExecutor finds the executor of a run. It returns an error if the executor cannot be
// started.
func (t *Task) LocateExecutor() (executor.Located, error) {
	s := *t.Job.Executor
	located, err := executor.Locate(s.Argv[0])
	if err == nil {
		err = t.checkExecutor(s, located)
	}
	return located, err
}

// checkExecutor returns an error if an agent or an untrusted source can write to a folder that
// influences the executor. It resolves links as they are now.
func (t *Task) checkExecutor(s executor.Settings, located executor.Located) error {
	for _, f := range s.Folders(located) {
		except := ""
		if f.Own {
			except = t.Agent.Name
		}
		w := t.Plan.Writers.Of(f.Path, except)
		if w == nil {
			continue
		}
		who := "strangers leave files"
		if w.Agent != "" {
			who = "the agent " + w.Agent + " can write"
		}
		return fmt.Errorf("executor.%s: %s is in, or around, %s, where %s, and so could lead the program; choose a place that no folder of an agent lies in or holds", f.Key, f.Path, w.Folder, who)
	}
	return nil
}
