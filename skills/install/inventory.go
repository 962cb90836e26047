package install

import (
	"path/filepath"
	"runtime"

	"rouse/skills"
)

// Listed is a skill, and whether it was installed.
type Listed struct {
	*skills.Skill
	Kind      skills.Kind `json:"kind"`
	State     string      `json:"state"`         // own, installed or changed: not what was installed
	Why       string      `json:"why,omitempty"` // it counts as changed, and what to do
	Installed *Pinned     `json:"installed,omitempty"`
}

// Inventory are all skills of a catalog, and the problems of discovering them.
type Inventory struct {
	Skills   []Listed         `json:"skills"`
	Problems []skills.Problem `json:"problems"`
}

// Inspect says of each skill of a catalog whether it was installed, and changed since.
func Inspect(all *skills.Catalog) (Inventory, error) {
	out := Inventory{Skills: []Listed{}, Problems: []skills.Problem{}}
	out.Problems = append(out.Problems, all.Problems()...)

	pins := map[string][]Pinned{} // by folder, so that each lock file is read once
	for _, s := range all.Skills() {
		listed, err := inspect(s, pins)
		if err != nil {
			return out, err
		}
		out.Skills = append(out.Skills, listed)
	}

	return out, nil
}

// InspectOne is Inspect for one skill.
func InspectOne(s *skills.Skill) (Listed, error) { return inspect(s, map[string][]Pinned{}) }

func inspect(s *skills.Skill, pins map[string][]Pinned) (Listed, error) {
	listed, root := Listed{Skill: s, Kind: s.Kind(), State: "own"}, filepath.Dir(s.Dir)
	if _, read := pins[root]; !read {
		list, err := Installed(root)
		if err != nil {
			return listed, err
		}
		pins[root] = list
	}

	p := find(pins[root], filepath.Base(s.Dir))
	if p == nil {
		return listed, nil
	}
	listed.Installed, listed.State = p, "installed"
	if err := p.check(root); err != nil {
		listed.State, listed.Why = "changed", err.Error() // what cannot be read is not what was installed either
	}

	return listed, nil
}

// maxListed is how many files of a skill its detail lists.
const maxListed = 1000

// Detail is all that is shown of one skill (OSL-34).
type Detail struct {
	Listed
	Terms        []skills.Term    `json:"terms,omitempty"`     // what its program says and asks for
	Obstacles    []string         `json:"obstacles,omitempty"` // why its program cannot run here
	Instructions string           `json:"instructions"`        // "" of a program alone
	Docs         string           `json:"docs,omitempty"`
	Files        []string         `json:"files"` // beside SKILL.md, or manifest.json
	More         bool             `json:"more"`  // there are more files than are listed
	Problems     []skills.Problem `json:"problems"`
}

// Describe reads all that is shown of a skill. problems are those of loading it.
func Describe(s *skills.Skill, problems []skills.Problem) (out Detail, err error) {
	out.Problems = append([]skills.Problem{}, problems...)
	if out.Listed, err = InspectOne(s); err != nil {
		return out, err
	}

	if s.Manifest != nil {
		out.Terms, out.Obstacles = s.Manifest.Terms(), s.Manifest.Obstacles(runtime.GOOS)
	}
	// What a program has instead of instructions are its docs.
	if out.Kind != skills.KindModule {
		if out.Instructions, err = s.Instructions(); err != nil {
			return out, err
		}
	}
	if out.Docs, err = s.Docs(); err != nil {
		return out, err
	}

	out.Files, out.More, err = s.Files(maxListed)
	out.Files = append([]string{}, out.Files...)
	return out, err
}
