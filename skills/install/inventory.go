package install

import (
	"path/filepath"
	"runtime"

	"rouse/skills"
)

// Listed is a skill with its installation state.
type Listed struct {
	*skills.Skill
	Kind      skills.Kind `json:"kind"`
	State     string      `json:"state"`         // own, installed, or changed since installation
	Why       string      `json:"why,omitempty"` // reason for the state changed, with a remedy
	Installed *Pinned     `json:"installed,omitempty"`
}

// Inventory lists the skills of a catalog and the problems found during discovery.
type Inventory struct {
	Skills   []Listed         `json:"skills"`
	Problems []skills.Problem `json:"problems"`
}

// Inspect returns the installation state of each skill in a catalog.
func Inspect(all *skills.Catalog) (Inventory, error) {
	out := Inventory{Skills: []Listed{}, Problems: []skills.Problem{}}
	out.Problems = append(out.Problems, all.Problems()...)

	pins := map[string][]Pinned{} // by folder; each lock file is read once
	for _, s := range all.Skills() {
		listed, err := inspect(s, pins)
		if err != nil {
			return out, err
		}
		out.Skills = append(out.Skills, listed)
	}

	return out, nil
}

// InspectOne returns the installation state of one skill.
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
		// An unreadable skill counts as changed too.
		listed.State, listed.Why = "changed", err.Error()
	}

	return listed, nil
}

// maxListed is the maximum number of files in a Detail.
const maxListed = 1000

// Detail is the full description of a skill for display.
type Detail struct {
	Listed
	Terms        []skills.Term    `json:"terms,omitempty"`     // properties and requests of its program
	Obstacles    []string         `json:"obstacles,omitempty"` // reasons why it cannot run here
	Instructions string           `json:"instructions"`        // "" if the skill has no SKILL.md
	Docs         string           `json:"docs,omitempty"`
	Files        []string         `json:"files"` // without SKILL.md or manifest.json
	More         bool             `json:"more"`  // Files is incomplete
	Problems     []skills.Problem `json:"problems"`
}

// Describe returns the full description of a skill. problems are the problems of loading it.
func Describe(s *skills.Skill, problems []skills.Problem) (out Detail, err error) {
	out.Problems = append([]skills.Problem{}, problems...)
	if out.Listed, err = InspectOne(s); err != nil {
		return out, err
	}

	if s.Manifest != nil {
		out.Terms, out.Obstacles = s.Manifest.Terms(), s.Manifest.Obstacles(runtime.GOOS)
	}
	// A program without a SKILL.md has docs instead of instructions.
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
