package skills

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
)

// Access says what an agent may see of skills (AUT-07).
type Access string

// The modes of access.
const (
	AccessGlobal    Access = "global_discovery" // all there are
	AccessPreloaded Access = "preloaded_only"   // those that it was given
	AccessNone      Access = "none"
)

// View is what one agent sees: skills that stand in its prompt in full, and others that it
// may load.
type View struct {
	Preloaded []*Skill // in the order in which they were named
	Others    []*Skill // by name

	withheld map[string]bool // skills that exist and that it may not have
}

// ErrNotGranted says that a skill exists and that the agent may not have it.
var ErrNotGranted = errors.New("is not among the skills of this agent")

// View is the part of the catalog that an agent sees. preloaded are the skills that it was
// given, of the catalog or not; one of them hides another of its name. No access is the
// agent's default: preloaded_only where it was given skills, else global_discovery.
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
			v.Others = append(v.Others, s)
		}
	}

	return v
}

// Empty says that the agent sees none, and is told nothing of skills (AGS-07).
func (v View) Empty() bool { return len(v.Preloaded)+len(v.Others) == 0 }

// All are the skills that the agent may have, the preloaded ones first.
func (v View) All() []*Skill { return slices.Concat(v.Preloaded, v.Others) }

// Find looks for a skill by its name, or by the path of its directory or of its SKILL.md
// (AUT-04). A path finds what the view holds, and nothing beside it: what else lies on the
// disk may have been written by anybody. The error names both attempts.
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

// isAt says whether a path is that of the skill, links resolved.
func (s *Skill) isAt(path string) bool {
	path = filepath.Clean(path)
	if path == s.Dir || path == s.File {
		return true
	}
	if base := filepath.Base(path); !slices.Contains(fileNames, base) && base != filepath.Base(s.Dir) {
		return false // without asking the system, which many skills would make slow
	}

	real, err := filepath.EvalSymlinks(path)
	return err == nil && (real == s.Dir || real == s.File)
}
