package prompt

import (
	"strings"
	"unicode"

	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/skills"
	"rouse/skills/install"
)

// ReadSkills reads the skills that the agent preloads, and the skills that the prompt names as
// /name. It ignores names in the instructions of a wake. It returns an error that ends the run if a
// skill cannot be used.
func (s *Snapshot) ReadSkills(t *plan.Task) error {
	v := t.Agent.Skills.View
	if v.Empty() || !t.NeedsModel() {
		return nil
	}

	for _, sk := range v.Preloaded {
		if err := install.Verify(sk); err != nil {
			return plan.EndEarly(domain.OutcomeError, "%v", err)
		}
	}

	var err error
	if s.Skills, err = v.Prompt(t.Agent.Skills.Style); err != nil {
		return plan.EndEarly(domain.OutcomeError, "%v", err)
	}
	if t.Detail.Wake != nil {
		return nil
	}

	for _, sk := range skillsNamedIn(v.Loadable, t.Job.Prompt) {
		err := install.Verify(sk)
		var text string
		if err == nil {
			text, err = sk.Content()
		}
		if err != nil {
			return plan.EndEarly(domain.OutcomeError, "the task asks for /%s: %v", sk.Name, err)
		}
		s.Activated = append(s.Activated, activatedSkill{sk.Name, text})
	}

	return nil
}

type activatedSkill struct {
	Name    string `json:"name"`
	Content string `json:"content"`
}

func skillsNamedIn(list []*skills.Skill, text string) []*skills.Skill {
	var out []*skills.Skill
	seen := map[string]bool{}
	for _, word := range strings.Fields(text) {
		name, ok := strings.CutPrefix(strings.TrimRightFunc(word, unicode.IsPunct), "/")
		if !ok || seen[name] {
			continue
		}

		seen[name] = true
		for _, s := range list {
			if s.Name == name {
				out = append(out, s)
			}
		}
	}

	return out
}
