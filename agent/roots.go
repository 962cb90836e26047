package agent

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/internal/fspath"
	"rouse/internal/ledger"
	"rouse/internal/owner"
)

// roots are the places that the tools of an attempt reach, with what is known of what lies there.
func (r *Runner) roots(t *attempt) (*tool.Roots, error) {
	roots, err := tool.NewRootsWithin(t.Plan.Boundary, cmp.Or(t.BaseDir, t.Agent.Workdir), grants(t))
	if err != nil {
		return nil, err
	}

	roots.Distrust(t.Plan.WatchedFolders...)
	roots.KeepPrivate(tool.WithResolvedLinks(t.Agent.PrivateFolders)...)
	roots.Mask(t.Plan.Masks)
	if t.Agent.Mode == plan.ModeIsolated {
		roots.HideSecrets()
	}

	// A run must not change the skills that it is given, wherever they lie.
	for _, s := range t.Agent.Skills.All() {
		if !slices.ContainsFunc(t.Plan.Masks.ReadOnly, func(f string) bool { return fspath.Within(s.Dir, f) }) {
			roots.Mask(tool.Masks{ReadOnly: []string{s.Dir}})
		}
	}

	if t.authorizer != nil {
		t.authorizer.roots = roots
		roots.OnWrite(t.authorizer.labelFile)
	}

	if t.Job.Watched.Folder != "" {
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
	for _, p := range t.Agent.Read {
		out = append(out, tool.Grant{Path: p, Private: !slices.Contains(t.Agent.Public, p)})
	}

	for _, p := range t.Agent.Write {
		out = append(out, tool.Grant{Path: p, Write: true})
	}

	files := plan.Present(t.Files)
	if t.Detail.File != nil {
		files = []ledger.File{*t.Detail.File}
	}

	for _, f := range files {
		out = append(out, tool.Grant{Path: f.Path, File: true, Untrusted: true})
	}

	if t.Manifest != "" {
		out = append(out, tool.Grant{Path: t.Manifest, File: true, Untrusted: true})
	}

	if t.Received != "" {
		out = append(out, tool.Grant{Path: t.Received, Untrusted: true})
	}

	if t.Detail.Folder != "" {
		out = append(out, tool.Grant{Path: t.Detail.Folder, Untrusted: true})
	}

	return append(out, skillGrants(t)...)
}

// makeWorkdir creates the agent's workdir and the folders of grants.write in it. A name with an
// extension counts as a file.
func makeWorkdir(t *plan.Task) error {
	folders := []string{t.Agent.Workdir}
	for _, path := range t.Agent.Write {
		if _, err := t.Plan.Boundary.Stat(path); errors.Is(err, fs.ErrNotExist) && fspath.Within(path, t.Agent.Workdir) && filepath.Ext(path) == "" {
			folders = append(folders, path)
		}
	}

	for _, folder := range folders {
		dir, err := t.Plan.Boundary.MakeRoot(folder, owner.Usual(0o755))
		if err != nil {
			return err
		}
		if err := dir.Close(); err != nil {
			return err
		}
	}
	return nil
}
