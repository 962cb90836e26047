package skills

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Catalog is a set of skills by name, and the problems of discovering them.
type Catalog struct {
	skills   map[string]*Skill
	problems []Problem
}

// Root is a directory that is searched for skills.
type Root struct {
	Path   string
	Source string // its name for people, like "user" or "./skills"
	// Only skills in trusted roots are loaded. Those in another are reported as problems: whoever
	// can write there could instruct the agent (AGS-06).
	Trusted bool
	// Accept says whether a skill in a root that is not trusted was trusted by itself, and with which hash of its
	// files. The error says why it is not as it was then. nil: none was.
	Accept func(dir string) (hash string, ok bool, err error)
	// Writer says who else can write in a root that is not trusted, as part of a sentence; "" when nobody can. Where
	// somebody can, no skill is accepted. nil: nobody. It is asked when there is a skill.
	Writer func() string
	// Tags are those of a skill that no index of the root lists. nil: it has none.
	Tags func(dir string) []string
}

// Discover searches roots for skills. Those of a later root override those of an earlier one
// (YOA-06, AGS-05). A root that does not exist is skipped. A skill that cannot be loaded is a
// problem, and does not replace the one that it would override.
func Discover(roots ...Root) *Catalog {
	c := &Catalog{skills: map[string]*Skill{}}
	for _, r := range roots {
		w := walker{catalog: c, root: r, visited: map[string]bool{}, programs: map[string]bool{}, hashes: map[string]string{}}
		w.onSkill = w.addSkill
		w.walk()
		w.findIndex()
		w.load() // before the next root, so that its skills override these
	}

	return c
}

// Add adds the skill of a directory, wherever it is (AUT-03), and returns it; nil if it cannot be
// loaded, and then the catalog's problems say why.
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

// register adds a skill, which replaces one of the same name.
func (c *Catalog) register(s *Skill) {
	key := foldName(s.Name)
	if old := c.skills[key]; old != nil && old.Dir != s.Dir {
		c.problems = append(c.problems, warning(old.File, RuleShadowed, "the skill %s is overridden by that of %s (%s)", old.Name, s.Dir, s.Source))
	}
	c.skills[key] = s
}

// foldName is a name as it is compared: two that differ in case alone are one directory on some
// systems.
func foldName(name string) string { return strings.ToLower(name) }

// Skills are all skills, by name.
func (c *Catalog) Skills() []*Skill {
	return slices.SortedFunc(maps.Values(c.skills), func(a, b *Skill) int { return cmp.Compare(a.Name, b.Name) })
}

// Get finds a skill by its name, in upper or lower case.
func (c *Catalog) Get(name string) (*Skill, bool) {
	s, ok := c.skills[foldName(strings.TrimSpace(name))]
	return s, ok
}

// Problems are those of all roots, root by root.
func (c *Catalog) Problems() []Problem { return slices.Clone(c.problems) }

// ProblemsOf are those of one skill.
func (c *Catalog) ProblemsOf(s *Skill) (out []Problem) {
	for _, p := range c.problems {
		if p.File == s.Dir || filepath.Dir(p.File) == s.Dir {
			out = append(out, p)
		}
	}
	return out
}
