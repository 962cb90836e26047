package skills

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Catalog is a set of skills by their names, and what was wrong where it looked.
type Catalog struct {
	skills   map[string]*Skill
	problems []Problem
}

// Root is a directory in which skills are looked for.
type Root struct {
	Path   string
	Source string // what people call it, like "user" or "./skills"
	// Trusted roots give skills. What lies in another is listed as a problem and not loaded:
	// whoever can write there could instruct the agent (AGS-06).
	Trusted bool
}

// Discover looks for skills in roots, of which a later one overrides an earlier one (YOA-06,
// AGS-05). A root that does not exist gives none. A skill that cannot be loaded is a problem,
// and does not replace the one that it would override.
func Discover(roots ...Root) *Catalog {
	c := &Catalog{skills: map[string]*Skill{}}
	for _, r := range roots {
		w := walker{catalog: c, root: r, visited: map[string]bool{}}
		w.onSkill = w.addSkill
		w.walk()
		w.load()
	}

	return c
}

// Add takes in the skill of one directory, wherever it is (AUT-03), and returns it, or nil
// when it cannot be loaded; the catalog's problems say why.
func (c *Catalog) Add(dir, source string) *Skill {
	s, problems := Load(dir)
	c.problems = append(c.problems, problems...)
	if s == nil {
		return nil
	}

	s.Source = source
	c.register(s)
	return s
}

// register lets a skill replace one of the same name.
func (c *Catalog) register(s *Skill) {
	key := foldName(s.Name)
	if old := c.skills[key]; old != nil && old.Dir != s.Dir {
		c.problems = append(c.problems, Problem{File: old.File, Rule: RuleShadowed, Warning: true,
			Message: fmt.Sprintf("the skill %s is overridden by that of %s (%s)", old.Name, s.Dir, s.Source)})
	}
	c.skills[key] = s
}

// foldName is a name as it is compared: two that differ in case only would be one directory on
// some systems.
func foldName(name string) string { return strings.ToLower(name) }

// Skills are all of them, by name.
func (c *Catalog) Skills() []*Skill {
	out := make([]*Skill, 0, len(c.skills))
	for _, s := range c.skills {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *Skill) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Get finds a skill by its name, in any case of letters.
func (c *Catalog) Get(name string) (*Skill, bool) {
	s, ok := c.skills[foldName(strings.TrimSpace(name))]
	return s, ok
}

// Problems is what was wrong, root by root.
func (c *Catalog) Problems() []Problem { return slices.Clone(c.problems) }
