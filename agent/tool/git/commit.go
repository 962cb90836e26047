package git

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"rouse/agent/tool"
	"rouse/internal/text"
)

const (
	maxMessage = 10_000 // characters
	maxFiles   = 1_000  // per commit
)

type commitArgs struct {
	Message string   `json:"message" jsonschema:"at most 10,000 characters"`
	Files   []string `json:"files,omitempty" jsonschema:"these alone; everything that has changed when absent"`
	// A git error fails the call in any case.
	MustSucceed bool `json:"must_succeed,omitempty" jsonschema:"true: that there is nothing to commit is a failure of the call"`
}

// draft is a commit that has not been created yet.
type draft struct {
	parent, tree string // parent is "" for the first commit
	branch       string
	names        []string
	paths        []string // to add, relative to the top folder; empty means all
}

// needs describes the commit to the authorizer. It does not change the repository.
func (f *family) needs(ctx context.Context, in tool.Invocation, a commitArgs) (tool.Access, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	need, err := f.readNeed(ctx)
	if err != nil {
		return need, err
	}
	r, err := openRepo(ctx, f.Launcher, in.Agent)
	if err != nil {
		return need, err
	}
	defer r.close()

	// New objects go to the scratch folder. The repository's objects are alternates.
	r.env = append(r.env, "GIT_OBJECT_DIRECTORY="+filepath.Join(r.scratch, "objects"), "GIT_ALTERNATE_OBJECT_DIRECTORIES="+filepath.Join(r.dir, ".git", "objects"))
	d, err := f.draft(ctx, r, a)
	if err != nil || d.tree == "" { // no changes, so no approval is needed
		return need, err
	}
	diff, _, err := f.patch(ctx, r, append(slices.Clone(diffOptions), cmp.Or(d.parent, r.emptyTree(ctx)), d.tree, "--"))
	if err != nil {
		return need, err
	}
	action, err := json.Marshal(map[string]string{"dir": r.dir, "branch": d.branch, "parent": d.parent, "tree": d.tree, "message": a.Message})
	if err != nil {
		return need, err
	}

	f.mu.Lock()
	f.proposedTrees[in.Key] = d.tree
	f.mu.Unlock()
	need.NeedsApproval, need.Action, need.Writes = true, string(action), need.Reads
	need.Shown = "commit on " + text.Visible(d.branch) + " in " + text.Visible(r.dir) + "\n\n" + text.Visible(a.Message) + "\n\n" + diff
	return need, nil
}

// emptyTree returns the hash of the empty tree. The first commit is compared with it.
func (r *repo) emptyTree(ctx context.Context) string {
	tree, err := r.line(ctx, "hash-object", "-t", "tree", "-w", os.DevNull)
	if err != nil {
		return ""
	}
	return tree
}

// draft computes the commit in a separate index. The tree is "" if there are no changes.
func (f *family) draft(ctx context.Context, r *repo, a commitArgs) (d draft, err error) {
	switch n := utf8.RuneCountInString(a.Message); {
	case strings.TrimSpace(a.Message) == "" || strings.ContainsRune(a.Message, 0):
		return d, tool.Refuse(tool.KindInvalidArgs, "a commit needs a message in words").WithField("message", "")
	case n > maxMessage:
		return d, tool.Refuse(tool.KindInvalidArgs, "the message has %d characters; it may have %d", n, maxMessage).WithField("message", "")
	}

	for _, name := range []string{"MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply"} {
		if _, err := os.Lstat(filepath.Join(r.dir, ".git", name)); err == nil {
			return d, tool.Refuse(tool.KindRejected, "a merge, a rebase or the like is going on in the repository (%s); its owner is to end it first", name)
		}
	}

	for _, path := range a.Files {
		rel, err := r.relative(path)
		if err != nil {
			return d, err
		}
		if err := r.checkKnown(ctx, rel); err != nil {
			return d, err
		}
		d.paths = append(d.paths, rel)
	}
	if d.parent, err = r.line(ctx, "rev-parse", "--verify", "--quiet", "HEAD"); err != nil {
		return d, err
	}
	if d.branch, err = r.line(ctx, "symbolic-ref", "--quiet", "--short", "HEAD"); err != nil {
		return d, err
	}

	d.branch = cmp.Or(d.branch, "no branch")
	// Without named files, the commit contains the index and all other changes. Otherwise the named
	// files are added to the parent's tree.
	if len(a.Files) == 0 {
		if err := r.copyIndex(); err != nil {
			return d, err
		}
	}

	r.env = append(r.env, "GIT_INDEX_FILE="+filepath.Join(r.scratch, "index"))
	defer func() { r.env = r.env[:len(r.env)-1] }()

	if len(a.Files) > 0 && d.parent != "" {
		if _, err := r.output(ctx, "read-tree", d.parent); err != nil {
			return d, err
		}
	}

	if err := r.add(ctx, d.paths); err != nil {
		return d, err
	}
	if d.tree, err = r.line(ctx, "write-tree"); err != nil {
		return d, err
	}

	return d, f.checkDraft(ctx, r, &d)
}

// add stages files as they are now, including deletions. It does not use git add, because that
// queries every submodule with the submodule's own configuration.
func (r *repo) add(ctx context.Context, paths []string) error {
	names, err := r.list(ctx, append([]string{"ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard", "--"}, paths...)...)
	if err != nil {
		return err
	}

	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, "/") }) // another repository
	if len(names) == 0 {
		return nil
	}

	_, err = r.gitWithInput(ctx, strings.NewReader(strings.Join(names, "\x00")), "update-index", "--add", "--remove", "--replace", "-z", "--stdin")
	return err
}

// checkKnown returns an error if a path neither exists nor is tracked.
func (r *repo) checkKnown(ctx context.Context, path string) error {
	if _, err := os.Lstat(filepath.Join(r.dir, filepath.FromSlash(path))); err == nil {
		return nil
	}

	names, err := r.list(ctx, "ls-files", "-z", "--", path)
	if err == nil && len(names) == 0 {
		err = tool.Refuse(tool.KindNotFound, "there is no file %s", text.Visible(path)).WithField("files", "")
	}
	return err
}

// checkDraft returns an error if a commit contains secrets or files that use a git filter.
func (f *family) checkDraft(ctx context.Context, r *repo, d *draft) (err error) {
	before := cmp.Or(d.parent, r.emptyTree(ctx))
	if d.names, err = r.list(ctx, "diff-tree", "-r", "-z", "--name-only", "--no-renames", before, d.tree); err != nil {
		return err
	}

	if len(d.names) == 0 {
		d.tree = ""
		return nil
	}

	if i := slices.IndexFunc(d.names, tool.IsSecretPath); i >= 0 {
		return tool.Refuse(tool.KindRejected, "%s holds secrets by its name, and is not committed; name the files that are meant", text.Clean(d.names[i]))
	}
	if len(d.names) > maxFiles {
		return tool.Refuse(tool.KindRejected, "%d files have changed, more than the %d of a commit here; name fewer", len(d.names), maxFiles)
	}

	output, err := r.gitWithInput(ctx, strings.NewReader(strings.Join(d.names, "\x00")+"\x00"), "check-attr", "-z", "--stdin", "filter")
	if err != nil {
		return err
	}

	attributes := split(output) // triples of path, attribute and value
	for i := 0; i+2 < len(attributes); i += 3 {
		if filter := attributes[i+2]; filter != "unspecified" && filter != "unset" && filter != "" {
			return tool.Refuse(tool.KindRejected, "%s is kept through the filter %s (Git LFS or the like), which is not run for an agent; its owner is to commit it", text.Clean(attributes[i]), text.Clean(filter))
		}
	}

	return nil
}

func (f *family) commit(ctx context.Context, in tool.Invocation, a commitArgs) (tool.Envelope, error) {
	r, err := openRepo(ctx, f.Launcher, in.Agent)
	if err != nil {
		return tool.Envelope{}, err
	}
	defer r.close()

	r.write = []string{filepath.Join(r.dir, ".git")}
	d, err := f.draft(ctx, r, a)
	switch {
	case err != nil:
		return tool.Envelope{}, err
	case d.tree == "" && a.MustSucceed:
		return tool.Failure(tool.KindExecutionError, "there is nothing to commit"), nil
	case d.tree == "":
		return tool.Success(map[string]any{"committed": false, "message": "nothing to commit"}), nil
	}

	f.mu.Lock()
	seen, asked := f.proposedTrees[in.Key]
	f.mu.Unlock()
	// The files may have changed between the approval and this call.
	if asked && seen != d.tree {
		return tool.Failure(tool.KindRejected, "the files have changed since the commit was approved, and nothing was committed; call again to have it approved as it is now"), nil
	}

	commit, err := r.createCommit(ctx, d, a.Message)
	if err != nil {
		return tool.Envelope{}, err
	}

	return tool.Success(map[string]any{"committed": true, "commit": commit, "branch": d.branch, "files": len(d.names)}), nil
}

// createCommit creates the commit and then stages the same content.
func (r *repo) createCommit(ctx context.Context, d draft, message string) (string, error) {
	args := []string{"commit-tree", "-m", message}
	if d.parent != "" {
		args = append(args, "-p", d.parent)
	}

	commit, err := r.line(ctx, append(args, d.tree)...)
	if err != nil {
		return "", err
	}

	subject, _, _ := strings.Cut(message, "\n")
	// update-ref compares the branch with the old value (zeros if there is none), so a concurrent
	// commit is not lost.
	before := cmp.Or(d.parent, strings.Repeat("0", len(commit)))
	if _, err := r.output(ctx, "update-ref", "-m", "commit: "+subject, "HEAD", commit, before); err != nil {
		return "", err
	}

	return commit, r.add(ctx, d.paths)
}
