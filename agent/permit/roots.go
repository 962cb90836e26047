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

// Roots returns the places that the tools of an attempt can reach, with their labels. The
// authorizer is optional. If set, it uses the roots for its decisions and labels new files.
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

	// A run must not change its own skills, wherever they are.
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

// grants returns the places that a run may reach: those of the agent, and the files that started
// the run. For a watched folder it is the whole folder, because the list of changes may be cut.
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

// MakeWorkdir creates the agent's workdir and the folders of grants.write in it. It treats a path
// with an extension as a file, and does not create it.
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

// skillGrants lets a run read the files of its skills.
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

// ClaimOutput records a file that a run writes into its job's watched folder, so that the job does
// not trigger itself.
func ClaimOutput(ctx context.Context, l *ledger.Ledger, t *plan.Attempt, o tool.Output) error {
	// The watch identifies files by the real path of the folder, which may have been created during
	// the run.
	root, err := t.Plan.Boundary.Resolve(t.Job.Watched.Folder)
	if err != nil {
		return nil //nolint:nilerr // a missing folder contains no files
	}

	rel, ok := fspath.Rel(root, o.Path)
	if !ok || rel == "." {
		return nil // outside the folder
	}
	if !t.Job.Watched.Recursive && filepath.Dir(rel) != "." {
		return nil
	}

	return l.Claims.ClaimOutput(ctx, t.Try, claim.Claim{Job: t.Job.Name, Path: filepath.ToSlash(o.Path), Hash: o.Hash, Size: o.Size, ModTime: o.ModTime})
}
