package checkout

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rouse/internal/text"
)

// How is the way in which a result is applied.
type How string

// The values of How.
const (
	Merge      How = "merge"       // fast-forward if possible, otherwise a merge commit of the owner
	CherryPick How = "cherry-pick" // repeats each commit on top of the target
)

// Applied describes an applied result.
type Applied struct {
	How    How       `json:"how"`
	Branch string    `json:"branch"` // branch of the owner's repository that has the changes
	Before string    `json:"before"`
	Commit string    `json:"commit"` // new commit of the branch; Before if the branch already had the changes
	At     time.Time `json:"at"`
}

// ConflictError is returned by Apply if the changes conflict with those of the target. The
// repository is then unchanged.
type ConflictError struct {
	Branch, Target string
	Commit         string // conflicting commit of the branch; empty for a merge
	Files          []string
}

func (e *ConflictError) Error() string {
	at := ""
	if e.Commit != "" {
		at = " at its commit " + short(e.Commit)
	}
	return fmt.Sprintf("the branch %s conflicts with %s%s in %s; nothing was changed. Merge it yourself (git merge %s), or run the job again from the new %s",
		e.Branch, e.Target, at, visible(e.Files), text.ShellWord(e.Branch), e.Target)
}

// visible formats a list of names that an agent has chosen.
func visible(files []string) string {
	var shown []string
	for _, name := range files[:min(len(files), 6)] {
		shown = append(shown, text.Visible(text.Head(name, 200)))
	}
	return text.List(append(shown, files[len(shown):]...), 5)
}

// DirtyError is returned by Apply if it would overwrite uncommitted changes of the owner. The
// repository is then unchanged.
type DirtyError struct {
	Folder string
	Files  []string
}

func (e *DirtyError) Error() string {
	return fmt.Sprintf("%s in %s would be overwritten, with changes that are not committed: %s; nothing was changed. Commit or stash them, and apply again",
		text.Plural(len(e.Files), "file"), e.Folder, visible(e.Files))
}

// Apply puts the commits of a result on the branch that the clone was made from. If the clone was
// not made from a branch, it uses the branch that is checked out. If a worktree has the target
// checked out, its files are updated. If Apply fails, nothing has changed, and it can be repeated.
// Afterwards the clone is removed. The branch of the result stays until Discard.
func (s *Store) Apply(ctx context.Context, res Result, how How) (Applied, error) {
	defer s.lock("run " + res.Run)()
	rec, err := s.read(res.Run)
	if err != nil {
		return Applied{}, err
	}
	if rec.Applied == nil {
		if err := s.apply(ctx, &rec, res, how); err != nil {
			return Applied{}, fmt.Errorf("apply run %s: %w", res.Run, err)
		}
	}
	return *rec.Applied, removeAll(rec.Dir)
}

func (s *Store) apply(ctx context.Context, rec *record, res Result, how How) error {
	if how != Merge && how != CherryPick {
		return fmt.Errorf("%q is neither %s nor %s", how, Merge, CherryPick)
	}
	if !slices.Contains(rec.Heads, res.Head) {
		return errors.New("the run has no commits that were brought back")
	}
	r, err := openRepository(ctx, rec.Repo, s.scratch())
	if err != nil {
		return err
	}
	defer r.close()
	defer s.lock("repository " + r.common)()

	at, err := r.ref(ctx, rec.Branch)
	if err == nil && at != "" && at != res.Head {
		err = fmt.Errorf("the branch %s is at %s by now, and %s was shown; look at it again", rec.Branch, short(at), short(res.Head))
	}
	if err != nil {
		return err
	}
	target := rec.Target
	if target == "" {
		target = r.head()
	}
	if target == "" {
		return fmt.Errorf("%s is not a branch, and no branch is checked out in %s; check out the one that is to have the changes", rec.Ref, r.path)
	}
	old, err := r.ref(ctx, target)
	if err != nil {
		return err
	}
	if old == "" {
		return fmt.Errorf("the branch %s is not in %s any more", target, r.path)
	}

	m := merging{git: r.bareGit(), base: rec.Base, head: res.Head, branch: rec.Branch, target: target, old: old}
	again := rec.Pending != nil && rec.Pending.Branch == target && rec.Pending.How == how
	switch {
	case again && rec.Pending.Commit == old: // done except for the record
	case again && rec.Pending.Before == old:
	default:
		again = false
		settings, err := r.ownersSettings(ctx)
		if err != nil {
			return err
		}
		m.env = settings.identity
		commit, err := m.make(ctx, how)
		if err != nil {
			return err
		}
		rec.Pending = &Applied{How: how, Branch: target, Before: old, Commit: commit, At: s.now().UTC()}
	}

	work, err := r.worktreeOf(target)
	if err != nil {
		return err
	}
	if work == nil {
		err = s.moveBranch(ctx, r, rec)
	} else {
		err = s.moveWorktree(ctx, r, work, rec, again)
	}
	if err != nil {
		return err
	}
	rec.Applied, rec.Pending = rec.Pending, nil
	return s.write(*rec)
}

// message returns the reflog message.
func (p *Applied) message(rec *record) string {
	return "rouse: " + string(p.How) + " " + rec.Branch + " of run " + rec.Run
}

// moveBranch sets a branch that is not checked out anywhere.
func (s *Store) moveBranch(ctx context.Context, r *repository, rec *record) error {
	p := rec.Pending
	if err := s.write(*rec); err != nil {
		return err
	}
	now, err := r.ref(ctx, p.Branch)
	if err == nil && now != p.Commit {
		_, err = r.bareGit().run(ctx, "update-ref", "-m", p.message(rec), "refs/heads/"+p.Branch, p.Commit, p.Before)
	}
	return err
}

// merging creates the new commit of a branch without a worktree.
type merging struct {
	git
	base, head, branch, target, old string
}

func (m merging) make(ctx context.Context, how How) (string, error) {
	if has, err := m.has(ctx, m.head, m.old); has || err != nil {
		return m.old, err
	}
	if how == CherryPick {
		return m.pick(ctx)
	}
	if forward, err := m.has(ctx, m.old, m.head); forward || err != nil {
		return m.head, err
	}
	tree, err := m.tree(ctx, m.old, m.head, "")
	if err != nil {
		return "", err
	}
	return m.line(ctx, "commit-tree", "-p", m.old, "-p", m.head, "-m", fmt.Sprintf("Merge branch '%s' into %s", m.branch, m.target), tree)
}

// has reports whether a commit is an ancestor of another one.
func (m merging) has(ctx context.Context, ancestor, of string) (bool, error) {
	_, err := m.run(ctx, "merge-base", "--is-ancestor", ancestor, of)
	if exitCode(err) == 1 {
		return false, nil
	}
	return err == nil, err
}

// tree merges two commits. at is the commit for a ConflictError.
func (m merging) tree(ctx context.Context, ours, theirs, at string) (string, error) {
	out, err := m.run(ctx, "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", ours, theirs)
	entries := split(out)
	if exitCode(err) == 1 && len(entries) > 1 {
		return "", &ConflictError{m.branch, m.target, at, slices.Compact(entries[1:])}
	}
	if err == nil && len(entries) == 0 {
		err = errors.New("git merge-tree printed no tree")
	}
	if err != nil {
		return "", err
	}
	return entries[0], nil
}

// pick repeats the commits of the branch on top of the target.
func (m merging) pick(ctx context.Context) (string, error) {
	list, err := m.run(ctx, "rev-list", "--reverse", "--topo-order", "--parents", m.head, "^"+m.base)
	if err != nil {
		return "", err
	}
	at := m.old
	for line := range strings.Lines(list) {
		hashes := strings.Fields(line)
		if len(hashes) != 2 {
			return "", fmt.Errorf("the branch %s has a merge or a beginning of its own at %s, which cannot be picked; merge it", m.branch, short(hashes[0]))
		}
		if at, err = m.pickOne(ctx, hashes[0], hashes[1], at); err != nil {
			return "", err
		}
	}
	return at, nil
}

func (m merging) pickOne(ctx context.Context, commit, parent, onto string) (string, error) {
	// merge-tree determines the merge base itself. A temporary commit with the tree of onto and the
	// parent of the picked commit makes that parent the merge base.
	stand, err := m.line(ctx, "commit-tree", "-p", parent, "-m", "onto", onto+"^{tree}")
	if err != nil {
		return "", err
	}
	tree, err := m.tree(ctx, stand, commit, commit)
	if err != nil {
		return "", err
	}
	if before, err := m.line(ctx, "rev-parse", onto+"^{tree}"); err != nil || before == tree {
		return onto, err // the target already has the change
	}

	author, err := m.run(ctx, "log", "-1", "--no-show-signature", "--format=%an%x00%ae%x00%ad%x00%B", "--date=raw", commit)
	if err != nil {
		return "", err
	}
	parts := strings.SplitN(author, "\x00", 4)
	if len(parts) != 4 {
		return "", fmt.Errorf("the author of %s cannot be read", short(commit))
	}
	g := m.git
	g.env = append(slices.Clone(g.env), "GIT_AUTHOR_NAME="+parts[0], "GIT_AUTHOR_EMAIL="+parts[1], "GIT_AUTHOR_DATE="+parts[2])
	out, err := g.runWith(ctx, strings.NewReader(parts[3]), "commit-tree", "-p", onto, "-F", "-", tree)
	return strings.TrimSpace(out), err
}

// owners holds settings of the owner for commits and files written in the owner's name.
type owners struct {
	identity []string          // as environment variables
	storage  map[string]string // settings for how files are stored
}

// ownersSettings reads the owner's identity from the repository's configuration or the owner's own.
// Reading a configuration does not run programs.
func (r *repository) ownersSettings(ctx context.Context) (o owners, err error) {
	c := exec.CommandContext(ctx, "git", "config", "--includes", "--null", "--list")
	c.Dir, c.Env = r.view, append(os.Environ(), "GIT_DIR="+r.gitDir)
	out, err := c.Output()
	if err != nil {
		return o, fmt.Errorf("git config --list: %w", err)
	}

	list := string(out)
	o.storage = storage(list)
	who := map[string]string{}
	for _, entry := range split(list) {
		if key, value, ok := strings.Cut(entry, "\n"); ok && (key == "user.name" || key == "user.email") {
			who[key] = value
		}
	}
	if who["user.name"] == "" || who["user.email"] == "" {
		return o, errors.New(`git does not know who merges; run: git config --global user.name "Your Name", and: git config --global user.email you@example.com`)
	}
	o.identity = []string{"GIT_AUTHOR_NAME=" + who["user.name"], "GIT_AUTHOR_EMAIL=" + who["user.email"], "GIT_COMMITTER_NAME=" + who["user.name"], "GIT_COMMITTER_EMAIL=" + who["user.email"]}
	return o, nil
}

// worktree is a folder in which a branch is checked out.
type worktree struct {
	folder, gitDir string
}

// checkNotOut returns an error if a branch is checked out. doing is the verb for the message.
func (r *repository) checkNotOut(branch, doing string) error {
	work, err := r.worktreeOf(branch)
	if err == nil && work != nil {
		err = fmt.Errorf("the branch %s is checked out in %s, and stays as it is; check out another one there, and %s again", branch, work.folder, doing)
	}
	return err
}

// worktreeOf returns the worktree in which a branch is checked out, or nil.
func (r *repository) worktreeOf(branch string) (*worktree, error) {
	if !r.bare && headOf(r.gitDir) == branch {
		return &worktree{r.path, r.gitDir}, nil
	}
	if r.gitDir != r.common && filepath.Base(r.common) == ".git" && headOf(r.common) == branch {
		return &worktree{filepath.Dir(r.common), r.common}, nil
	}
	linked, err := os.ReadDir(filepath.Join(r.common, "worktrees"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range linked {
		dir := filepath.Join(r.common, "worktrees", e.Name())
		if headOf(dir) != branch {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, "gitdir"))
		if err != nil {
			return nil, err
		}
		return &worktree{filepath.Dir(relativeTo(dir, strings.TrimSpace(string(content)))), dir}, nil
	}
	return nil, nil
}
