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

// Catalog is a set of skills, indexed by name. It also holds the problems found during discovery.
type Catalog struct {
	skills   map[string]*Skill
	problems []Problem
}

// Root is a directory that is searched for skills.
type Root struct {
	Path   string
	Source string // display name, like "user" or "./skills"
	// Trusted allows the skills of the root to be loaded. A skill in an untrusted root is reported
	// as a problem unless Accept approves it, because anyone with write access could instruct the
	// agent.
	Trusted bool
	// Accept reports whether a skill in an untrusted root was trusted individually, and returns the
	// trusted hash of its files. It returns an error if the files have changed since. Optional; if
	// nil, no skill of an untrusted root is accepted.
	Accept func(dir string) (hash string, ok bool, err error)
	// Writer names other users with write access to an untrusted root, as part of a sentence. It
	// returns "" if there are no such users; otherwise no skill of the root is accepted. It is
	// called for each skill found. Optional; if nil, the check is skipped.
	Writer func() string
	// Tags returns the tags of a skill that the root's index does not list. Optional.
	Tags func(dir string) []string
}

// Discover searches roots for skills. A skill in a later root overrides a skill of the same name in
// an earlier root. A root that does not exist is skipped. A skill that cannot be loaded is reported
// as a problem and does not override another skill.
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

// Add loads the skill in dir, adds it to the catalog and returns it. The directory can be anywhere.
// Add returns nil if the skill cannot be loaded; Problems then contains the reason.
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

// register adds a skill to the catalog. It replaces a skill of the same name.
func (c *Catalog) register(s *Skill) {
	key := foldName(s.Name)
	if old := c.skills[key]; old != nil && old.Dir != s.Dir {
		c.problems = append(c.problems, warning(old.File, RuleShadowed, "the skill %s is overridden by that of %s (%s)", old.Name, s.Dir, s.Source))
	}
	c.skills[key] = s
}

// foldName returns the form of a name that is used for comparison. It ignores case, because some
// file systems cannot hold two names that differ only in case.
func foldName(name string) string { return strings.ToLower(name) }

// Skills returns all skills, sorted by name.
func (c *Catalog) Skills() []*Skill {
	return slices.SortedFunc(maps.Values(c.skills), func(a, b *Skill) int { return cmp.Compare(a.Name, b.Name) })
}

// Get returns the skill with the given name, ignoring case.
func (c *Catalog) Get(name string) (*Skill, bool) {
	s, ok := c.skills[foldName(strings.TrimSpace(name))]
	return s, ok
}

// Problems returns the problems of all roots, in the order of the roots.
func (c *Catalog) Problems() []Problem { return slices.Clone(c.problems) }

// ProblemsOf returns the problems of one skill.
func (c *Catalog) ProblemsOf(s *Skill) (out []Problem) {
	for _, p := range c.problems {
		if p.File == s.Dir || filepath.Dir(p.File) == s.Dir {
			out = append(out, p)
		}
	}
	return out
}

// Access is an agent's mode of access to skills.
type Access string

// The access modes.
const (
	AccessGlobal    Access = "global_discovery" // every skill of the catalog
	AccessPreloaded Access = "preloaded_only"   // only the skills of the agent's configuration
	AccessNone      Access = "none"
)

// View is the set of skills that one agent can use. The prompt contains the instructions of
// preloaded skills; the agent loads the others on demand.
type View struct {
	Preloaded []*Skill // in the order of the configuration
	Loadable  []*Skill // sorted by name

	withheld map[string]bool // names of skills that exist but that the agent may not use
}

// ErrNotGranted is returned if a skill exists but the agent may not use it.
var ErrNotGranted = errors.New("is not among the skills of this agent")

// View returns the skills that an agent can use. The preloaded skills come from its configuration.
// They need not be in the catalog, and they hide catalog skills of the same name. The access ""
// means preloaded_only if preloaded is not empty, and global_discovery otherwise.
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

// Empty reports whether the agent has no skills. Its prompt and tools then do not mention skills.
func (v View) Empty() bool { return len(v.Preloaded)+len(v.Loadable) == 0 }

// All returns every skill that the agent can use, preloaded skills first.
func (v View) All() []*Skill { return slices.Concat(v.Preloaded, v.Loadable) }

// Find returns the skill with the given name, or with the given path of its directory or file. A
// path matches only skills of the view, because any user may have written other files on the disk.
// The error mentions both the name and the path lookup.
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

// isAt reports whether path resolves to the skill's directory or file.
func (s *Skill) isAt(path string) bool {
	path = filepath.Clean(path)
	if path == s.Dir || path == s.File {
		return true
	}
	if base := filepath.Base(path); !slices.Contains(fileNames, base) && base != manifestFile && base != filepath.Base(s.Dir) {
		return false // avoid a system call, which is slow if there are many skills
	}

	real, err := filepath.EvalSymlinks(path)
	return err == nil && (real == s.Dir || real == s.File)
}
