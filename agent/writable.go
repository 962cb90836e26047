package agent

import (
	"path/filepath"

	"rouse/agent/tool/executor"
	"rouse/internal/nofollow"
)

// writer is a folder in which an agent or a stranger can write.
type writer struct {
	agent   string // "" for strangers
	folder  string
	program bool // its executor writes there, and nothing else of the agent
}

type writers []writer

// writersOf lists those of a whole plan, because an agent may be led by what another one wrote.
func writersOf(p Plan) (out writers) {
	for _, folder := range watchedFolders(p) {
		out = append(out, writer{"", folder, false})
	}
	if p.Clones != "" {
		out = append(out, writer{"", p.Clones, false})
	}
	programs := func(agent string, s *executor.Settings) {
		if s == nil {
			return
		}
		for _, folder := range s.Writes() {
			out = append(out, writer{agent, folder, true})
		}
	}
	for _, a := range p.Agents {
		paths := a.Write
		if len(paths) == 0 {
			paths = []string{a.Workdir}
		}
		for _, path := range paths {
			out = append(out, writer{a.Name, filepath.Clean(path), false})
		}
		programs(a.Name, a.Executor)
	}
	for _, j := range p.Jobs {
		programs(j.Agent, j.Executor)
	}
	return out
}

// boundary is where what lies there can change between the approval of a command and its call.
func (w writers) boundary(p Plan) nofollow.Boundary {
	var out []string
	for _, one := range w {
		out = append(out, one.folder)
	}
	for _, a := range p.Agents {
		out = append(out, filepath.Clean(a.Workdir))
		for _, s := range a.Skills.All() { // a skill can be brought up to date
			out = append(out, filepath.Clean(s.Dir))
		}
	}
	return nofollow.NewBoundary(out...)
}

// overlaps reports whether a path is such a folder, lies in one or holds one.
func (w writers) overlaps(path string) bool { return w.of(path, "") != nil }

// of returns the first such folder that a path is, lies in or holds, nil if there is none. The folders that only the executor of an
// agent writes do not count if that agent is given.
func (w writers) of(path, agent string) *writer {
	glance := nofollow.NewGlance()
	held := glance.Boundary(path)
	for i, one := range w {
		if one.program && one.agent == agent && agent != "" {
			continue
		}
		if glance.Boundary(one.folder).Covers(path) || held.Covers(one.folder) {
			return &w[i]
		}
	}
	return nil
}
