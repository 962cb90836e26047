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
