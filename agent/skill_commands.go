package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/skills"
	"rouse/skills/install"
)

// shellToolNames are the names under which the allowed-tools of other agents speak of commands; unasked are
// those of their tools that need no permission here: what they reach is granted by folders.
var (
	shellToolNames      = []string{"bash", "shell"}
	foreignToolsAllowed = strings.Fields("read write edit multiedit glob grep ls notebookread notebookedit task todowrite todoread skill")
)

// SkillCommands are the commands that the allowed-tools of a skill allow, where its owner lets them
// (AGS-13), and the patterns that allow nothing here. They are written for other agents:
// Bash(git log:*) and Bash(git log *) are git log with any further arguments, Bash(make test) is that
// alone. Whatever is not plainly one program with its arguments allows nothing. A path is one within
// the skill where there is such a file: no other may stand in its place.
func SkillCommands(s *skills.Skill) (grants []shell.Grant, nothing []string) {
	if len(s.AllowedTools) == 0 {
		return nil, nil
	}

	own := Specs()
	for _, pattern := range s.AllowedTools {
		name, inner, _ := strings.Cut(strings.TrimSuffix(pattern, ")"), "(")
		name = strings.ToLower(name)
		spec := own.Find(name)
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
			return g, false // its folder's name would be a pattern
		}
	}

	g = shell.Grant{Argv: words}
	return g, len(words) > 0 && words[0] != "*" && g.Check() == nil
}

// ofSkill is the path of a file of the skill that a word names, else the word.
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

// skillGrant are the commands that a skill allows.
type skillGrant struct {
	*skills.Skill
	grants []shell.Grant
}

// skillsAllowingCommands are the skills that may allow the model of a task commands.
func (t *task) skillsAllowingCommands() (out []skillGrant) {
	if !t.agent.Skills.Allowing || !t.needsModel() {
		return nil
	}

	for _, s := range t.agent.Skills.All() {
		if grants, _ := SkillCommands(s); len(grants) > 0 {
			out = append(out, skillGrant{s, grants})
		}
	}
	return out
}

// allowedBySkills tells the commands that the skills allow which the model of a task has loaded so far;
// nil where skills allow nothing.
func (t *attempt) allowedBySkills() func() []shell.Grant {
	all := t.skillsAllowingCommands()
	if len(all) == 0 {
		return nil
	}

	return func() (out []shell.Grant) {
		for _, a := range all {
			if t.loaded.Has(a.Name) && install.Verify(a.Skill) == nil { // what it was loaded as
				out = append(out, a.grants...)
			}
		}
		return out
	}
}
