package permit

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
	"rouse/internal/ledger/claim"
	"rouse/internal/owner"
)

// Roots returns the places that the tools of an attempt reach, with their labels. The authorizer
// is optional: it decides by the roots, and labels what is written.
func Roots(l *ledger.Ledger, t *plan.Attempt, g *Authorizer) (*tool.Roots, error) {
	out, err := tool.NewRootsWithin(t.Plan.Boundary, cmp.Or(t.BaseDir, t.Agent.Workdir), grants(t))
	if err != nil {
		return nil, err
	}

	out.Distrust(t.Plan.WatchedFolders...)
	out.KeepPrivate(tool.WithResolvedLinks(t.Agent.PrivateFolders)...)
	out.Mask(t.Plan.Masks)
	if t.Agent.Mode == plan.ModeIsolated {
		out.HideSecrets()
	}

	// A run must not change the skills that it is given, wherever they lie.
	for _, s := range t.Agent.Skills.All() {
		if !slices.ContainsFunc(t.Plan.Masks.ReadOnly, func(f string) bool { return fspath.Within(s.Dir, f) }) {
			out.Mask(tool.ProtectedPaths{ReadOnly: []string{s.Dir}})
		}
	}

	if g != nil {
		g.roots = out
		out.OnWrite(g.labelFile)
	}

	if t.Job.Watched.Folder != "" {
		out.OnOutput(func(ctx context.Context, o tool.Output) error {
			return ClaimOutput(context.WithoutCancel(ctx), l, t, o)
		})
	}

	return out, nil
}

// grants returns the places that a run may reach: the agent's own, and what started the run. Of a
// watched folder that is all of it, because the list of changes may be cut.
func grants(t *plan.Attempt) []tool.Grant {
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

// MakeWorkdir creates the agent's workdir and the folders of grants.write in it. A name with an
// extension counts as a file.
func MakeWorkdir(t *plan.Task) error {
	folders := []string{t.Agent.Workdir}
	for _, path := range t.Agent.Write {
		if _, err := t.Plan.Boundary.Stat(path); errors.Is(err, fs.ErrNotExist) && fspath.Within(path, t.Agent.Workdir) && filepath.Ext(path) == "" {
			folders = append(folders, path)
		}
	}

	for _, folder := range folders {
		dir, err := t.Plan.Boundary.MakeRoot(folder, owner.ApplyUmask(0o755))
		if err != nil {
			return err
		}
		if err := dir.Close(); err != nil {
			return err
		}
	}
	return nil
}

// skillGrants let a run read what lies in its skills (AGS-11, AUT-08).
func skillGrants(t *plan.Attempt) []tool.Grant {
	if !t.NeedsModel() {
		return nil
	}

	var out []tool.Grant
	for _, s := range t.Agent.Skills.All() {
		out = append(out, tool.Grant{Path: s.Dir, OmitFromMessages: true})
	}
	return out
}

// ClaimOutput records a file that a run writes into the folder that its job watches, so that the
// job does not wake itself.
func ClaimOutput(ctx context.Context, l *ledger.Ledger, t *plan.Attempt, o tool.Output) error {
	// A watch knows its files by the real name of the folder, which may be younger than the run.
	root, err := t.Plan.Boundary.Resolve(t.Job.Watched.Folder)
	if err != nil {
		return nil //nolint:nilerr // a folder that is not there holds nothing
	}

	rel, ok := fspath.Rel(root, o.Path)
	if !ok || rel == "." {
		return nil // not in the folder
	}
	if !t.Job.Watched.Recursive && filepath.Dir(rel) != "." {
		return nil
	}

	return l.Claims.ClaimOutput(ctx, t.Try, claim.Claim{Job: t.Job.Name, Path: filepath.ToSlash(o.Path), Hash: o.Hash, Size: o.Size, ModTime: o.ModTime})
}
