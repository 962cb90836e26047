package agent

import (
	"path/filepath"

	"rouse/internal/nofollow"
)

// writableFolders are the folders in which an agent or a stranger can write: what lies there can change
// between the approval of a command and its call. They are those of the whole plan, because an agent may be
// led by what another one wrote.
func writableFolders(p Plan) nofollow.Boundary {
	out := watchedFolders(p)
	if p.Clones != "" {
		out = append(out, p.Clones)
	}
	for _, a := range p.Agents {
		out = append(out, filepath.Clean(a.Workdir))
		if a.Executor != nil {
			out = append(out, a.Executor.Writes()...)
		}
		for _, path := range a.Write {
			out = append(out, filepath.Clean(path))
		}
		for _, s := range a.Skills.All() { // a skill can be brought up to date
			out = append(out, filepath.Clean(s.Dir))
		}
	}

	for _, j := range p.Jobs {
		if j.Executor != nil {
			out = append(out, j.Executor.Writes()...)
		}
	}

	return nofollow.NewBoundary(out...)
}
