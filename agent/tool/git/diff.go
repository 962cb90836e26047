package git

import (
	"context"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/internal/text"
)

type diffArgs struct {
	Path   string `json:"path,omitempty" jsonschema:"a file or folder; everything when absent"`
	Staged bool   `json:"staged,omitempty" jsonschema:"what is staged, instead of what is in the folder"`
	Commit string `json:"commit,omitempty" jsonschema:"compare with this commit instead of the last state that was staged or committed"`
}

func (f *family) gitDiff(ctx context.Context, in tool.Invocation, a diffArgs) (tool.Envelope, error) {
	r, err := openRepo(ctx, f.Launcher, in.Agent)
	if err != nil {
		return tool.Envelope{}, err
	}
	defer r.close()

	text, hidden, err := f.diff(ctx, r, a)
	if err != nil {
		return tool.Envelope{}, err
	}
	var warnings []string
	if len(hidden) > 0 {
		warnings = append(warnings, "files that hold secrets by their names are left out: "+strings.Join(hidden, ", "))
	}
	return tool.Success(map[string]any{"diff": text, "changed": text != ""}, warnings...), nil
}

// diffOptions keep git diff from running other programs and from entering submodules.
var diffOptions = []string{"--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all"}

func (f *family) diff(ctx context.Context, r *repo, a diffArgs) (shown string, hidden []string, err error) {
	args := slices.Clone(diffOptions)
	if a.Staged {
		args = append(args, "--cached")
	}

	if a.Commit != "" {
		// A resolved hash cannot be an option or a range.
		commit, err := r.line(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", a.Commit+"^{commit}")
		if err != nil {
			return "", nil, err
		}
		if commit == "" {
			return "", nil, tool.Refuse(tool.KindNotFound, "there is no commit %s", text.Visible(a.Commit)).WithField("commit", "")
		}
		args = append(args, commit)
	}

	args = append(args, "--")
	if a.Path != "" {
		path, err := r.relative(a.Path)
		if err != nil {
			return "", nil, err
		}
		args = append(args, path)
	}

	return f.patch(ctx, r, args)
}

// patch returns a diff without files that hold secrets according to their names. The diff is cut to
// maxDiff.
func (f *family) patch(ctx context.Context, r *repo, args []string) (shown string, hidden []string, err error) {
	// With rename detection, a secret file could appear under its new name.
	names, err := r.list(ctx, append([]string{"diff", "--name-only", "-z", "--no-renames"}, args...)...)
	if err != nil {
		return "", nil, err
	}

	open := slices.DeleteFunc(slices.Clone(names), tool.IsSecretPath)
	for _, name := range names {
		if tool.IsSecretPath(name) {
			hidden = append(hidden, text.Clean(name))
		}
	}

	if len(open) == 0 {
		return "", hidden, nil
	}

	if len(hidden) > 0 { // diff only the visible files
		args = append(slices.Clone(args[:slices.Index(args, "--")+1]), open...)
	}

	out := shell.NewOutput(maxDiff)
	if err := r.run(ctx, nil, out, append([]string{"diff", "--stat", "--patch"}, args...)...); err != nil {
		return "", nil, err
	}

	return out.Text(f.Redact), hidden, nil
}
