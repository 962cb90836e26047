package skills

import (
	"cmp"
	"errors"
	"fmt"
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
		w := walker{catalog: c, root: r, visited: map[string]bool{}, hashes: map[string]string{}}
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

// Access says what an agent may see of skills (AUT-07).
type Access string

// The modes of access.
const (
	AccessGlobal    Access = "global_discovery" // all there are
	AccessPreloaded Access = "preloaded_only"   // those that it was given
	AccessNone      Access = "none"
)

// View is what one agent sees: skills whose instructions are part of its prompt, and others that it
// may load.
type View struct {
	Preloaded []*Skill // in the order in which the configuration names them
	Loadable  []*Skill // by name

	withheld map[string]bool // names of skills that exist and that it may not use
}

// ErrNotGranted: the skill exists, and the agent may not use it.
var ErrNotGranted = errors.New("is not among the skills of this agent")

// View is the part of the catalog that an agent sees. preloaded are the skills of its configuration,
// which may be outside of the catalog and hide those of the same name. The access "" is the default:
// preloaded_only if there are any, else global_discovery (AUT-07).
func (c *Catalog) View(access Access, preloaded []*Skill) View {
	if access == AccessNone {
		return View{}
	}

	v := View{Preloaded: preloaded}
	if access == AccessPreloaded || access == "" && len(preloaded) > 0 {
		v.withheld = map[string]bool{}
		for name := range c.skills {
			v.withheld[name] = true
		}
		return v
	}

	for _, s := range c.Skills() {
		if !slices.ContainsFunc(preloaded, func(p *Skill) bool { return foldName(p.Name) == foldName(s.Name) }) {
			v.Loadable = append(v.Loadable, s)
		}
	}

	return v
}

// Empty says that the agent has no skills: neither its prompt nor its tools mention any (AGS-07).
func (v View) Empty() bool { return len(v.Preloaded)+len(v.Loadable) == 0 }

// All are the skills that the agent may use, the preloaded ones first.
func (v View) All() []*Skill { return slices.Concat(v.Preloaded, v.Loadable) }

// Find finds a skill by its name, or by the path of its directory or of its file (AUT-04). A path
// finds only skills of the view: anything else on the disk may have been written by anybody. The
// error names both attempts.
func (v View) Find(nameOrPath string) (*Skill, error) {
	all := v.All()
	i := slices.IndexFunc(all, func(s *Skill) bool { return foldName(s.Name) == foldName(nameOrPath) })
	if i < 0 && filepath.IsAbs(nameOrPath) {
		i = slices.IndexFunc(all, func(s *Skill) bool { return s.isAt(nameOrPath) })
	}
	if i < 0 && v.withheld[foldName(nameOrPath)] {
		return nil, fmt.Errorf("the skill %s %w", nameOrPath, ErrNotGranted)
	}
	if i < 0 {
		return nil, fmt.Errorf("there is no skill of the name %q here, and no skill at the path %q", nameOrPath, nameOrPath)
	}

	return all[i], nil
}

// isAt says whether a path leads to the skill, with links resolved.
func (s *Skill) isAt(path string) bool {
	path = filepath.Clean(path)
	if path == s.Dir || path == s.File {
		return true
	}
	if base := filepath.Base(path); !slices.Contains(fileNames, base) && base != manifestFile && base != filepath.Base(s.Dir) {
		return false // without a system call, which would be slow for many skills
	}

	real, err := filepath.EvalSymlinks(path)
	return err == nil && (real == s.Dir || real == s.File)
}
