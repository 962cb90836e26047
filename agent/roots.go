package agent

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"

	"rouse/agent/tool"
	"rouse/agentdb/ledger"
	"rouse/internal/fspath"
)

// roots are the places that the tools of an attempt reach, with what is known of what lies there.
func (r *Runner) roots(t *attempt) (*tool.Roots, error) {
	roots, err := tool.NewRootsWithin(t.boundary, cmp.Or(t.baseDir, t.agent.Workdir), grants(t))
	if err != nil {
		return nil, err
	}

	roots.Distrust(t.watchedFolders...)
	roots.KeepPrivate(tool.WithResolvedLinks(t.agent.PrivateFolders)...)
	roots.Mask(t.masks)
	if t.agent.Mode == ModeIsolated {
		roots.HideSecrets()
	}

	// A run must not change the skills that it is given, wherever they lie.
	for _, s := range t.agent.Skills.All() {
		if !slices.ContainsFunc(t.masks.ReadOnly, func(f string) bool { return fspath.Within(s.Dir, f) }) {
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

// grants are the places that a run may reach: the agent's own, and what started the run. Of
// a folder that is to come to rest that is all of it: its list of changes is cut when it is
// long, and what is right to do with one file depends on the others.
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

// watchedFolders are the folders that jobs watch, and all others that strangers' files come to: what lies there may
// be their work, whichever run reads it.
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
