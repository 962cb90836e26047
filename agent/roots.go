package agent

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"

	"rouse/agent/tool"
	"rouse/agent/tool/executor"
	"rouse/internal/fspath"
	"rouse/internal/ledger"
	"rouse/internal/nofollow"
)

// roots are the places that the tools of an attempt reach, with what is known of what lies there.
func (r *Runner) roots(t *attempt) (*tool.Roots, error) {
	roots, err := tool.NewRootsWithin(t.plan.Boundary, cmp.Or(t.baseDir, t.agent.Workdir), grants(t))
	if err != nil {
		return nil, err
	}

	roots.Distrust(t.plan.watchedFolders...)
	roots.KeepPrivate(tool.WithResolvedLinks(t.agent.PrivateFolders)...)
	roots.Mask(t.plan.Masks)
	if t.agent.Mode == ModeIsolated {
		roots.HideSecrets()
	}

	// A run must not change the skills that it is given, wherever they lie.
	for _, s := range t.agent.Skills.All() {
		if !slices.ContainsFunc(t.plan.Masks.ReadOnly, func(f string) bool { return fspath.Within(s.Dir, f) }) {
			roots.Mask(tool.Masks{ReadOnly: []string{s.Dir}})
		}
	}

	if t.authorizer != nil {
		t.authorizer.roots = roots
		roots.OnWrite(t.authorizer.labelFile)
	}

	if t.job.Watched.Folder != "" {
		roots.OnOutput(func(ctx context.Context, o tool.Output) error {
			return r.claimOutput(context.WithoutCancel(ctx), t, o)
		})
	}

	return roots, nil
}

// grants returns the places that a run may reach: the agent's own, and what started the run. Of a
// watched folder that is all of it, because the list of changes may be cut.
func grants(t *attempt) []tool.Grant {
	var out []tool.Grant
	for _, p := range t.agent.Read {
		out = append(out, tool.Grant{Path: p, Private: !slices.Contains(t.agent.Public, p)})
	}

	for _, p := range t.agent.Write {
		out = append(out, tool.Grant{Path: p, Write: true})
	}

	files := present(t.files)
	if t.detail.File != nil {
		files = []ledger.File{*t.detail.File}
	}

	for _, f := range files {
		out = append(out, tool.Grant{Path: f.Path, File: true, Untrusted: true})
	}

	if t.manifest != "" {
		out = append(out, tool.Grant{Path: t.manifest, File: true, Untrusted: true})
	}

	if t.received != "" {
		out = append(out, tool.Grant{Path: t.received, Untrusted: true})
	}

	if t.detail.Folder != "" {
		out = append(out, tool.Grant{Path: t.detail.Folder, Untrusted: true})
	}

	return append(out, skillGrants(t)...)
}

// watchedFolders returns the folders in which strangers can leave files.
func watchedFolders(p Plan) (out []string) {
	for _, folder := range p.UntrustedFolders {
		out = append(out, filepath.Clean(folder))
	}
	for _, j := range p.Jobs {
		if j.Watched.Folder != "" {
			out = append(out, filepath.Clean(j.Watched.Folder))
		}
	}
	return tool.WithResolvedLinks(out)
}

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

// of returns the first such folder that a path is, lies in or holds, or nil. It ignores folders
// that only the executor of the given agent writes.
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
