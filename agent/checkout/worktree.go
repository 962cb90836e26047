package checkout

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rouse/internal/text"
)

// unfinished maps the files of operations that the owner has started in a worktree to their names.
var unfinished = map[string]string{"MERGE_HEAD": "merge", "CHERRY_PICK_HEAD": "cherry-pick", "REVERT_HEAD": "revert", "rebase-merge": "rebase", "rebase-apply": "rebase", "BISECT_LOG": "bisect"}

// change is a file that differs between two commits.
type change struct {
	mode, hash, path string
	deleted          bool
}

// mover moves a worktree and its branch from one commit to another.
//
// It works on a copy of the index and holds the index lock to keep other git processes out. After a
// crash the lock remains, with the name of the run in it. The next attempt continues from there.
type mover struct {
	git
	work  *worktree
	lock  string // index.lock
	owner string // content of the lock
	index string // copy of the index
}

// moveWorktree moves a checked-out branch and the files of its worktree. again means that an
// earlier attempt may have been interrupted at any point.
func (s *Store) moveWorktree(ctx context.Context, r *repository, work *worktree, rec *record, again bool) (err error) {
	p := rec.Pending
	settings, err := r.ownersSettings(ctx)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.view, "config"), []byte(configText(settings.storage)), 0o600); err != nil {
		return err
	}
	index := filepath.Join(work.gitDir, "rouse-index")
	m := mover{
		git:  git{dir: work.gitDir, common: r.view, work: work.folder, env: append(settings.identity, "GIT_INDEX_FILE="+index, "GIT_LITERAL_PATHSPECS=1")},
		work: work, lock: filepath.Join(work.gitDir, "index.lock"), owner: "rouse run " + rec.Run + "\n", index: index,
	}

	if err := m.check(); err != nil {
		return err
	}
	changes, err := m.changes(ctx, p.Before, p.Commit)
	if err != nil {
		return err
	}
	if !again {
		if err := m.refuse(ctx, p.Before, p.Commit, changes); err != nil {
			return err
		}
	}

	// From here on, Recover finishes the operation after a crash.
	if err := s.write(*rec); err != nil {
		return err
	}
	if err := m.begin(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.end()) }()
	if err := m.copyIndex(); err != nil {
		return err
	}
	if again {
		if err := m.adopt(ctx, p.Commit, changes); err != nil {
			return err
		}
	}
	if _, err := m.run(ctx, "read-tree", "-m", "-u", p.Before, p.Commit); err != nil {
		return err
	}
	if err := os.Rename(index, filepath.Join(work.gitDir, "index")); err != nil {
		return err
	}
	step()
	if now, err := m.line(ctx, "rev-parse", "--verify", "HEAD"); err != nil || now == p.Commit {
		return err
	}
	_, err = m.run(ctx, "update-ref", "-m", p.message(rec), "HEAD", p.Commit, p.Before)
	return err
}

// check returns an error if another operation is unfinished in the worktree, or the worktree is a
// sparse checkout.
func (m mover) check() error {
	for name, what := range unfinished {
		if _, err := os.Lstat(filepath.Join(m.dir, name)); err == nil {
			return fmt.Errorf("a %s is not finished in %s; finish it, and apply again", what, m.work.folder)
		}
	}
	if _, err := os.Lstat(filepath.Join(m.dir, "info", "sparse-checkout")); err == nil {
		return fmt.Errorf("%s is a sparse checkout; merge the branch there yourself", m.work.folder)
	}
	return nil
}

// begin takes the index lock.
func (m mover) begin() error {
	f, err := os.OpenFile(m.lock, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		content, err := os.ReadFile(m.lock)
		if err != nil || string(content) != m.owner {
			return errors.Join(err, fmt.Errorf("another git is at work in %s; apply again when it is done. If none is, remove %s", m.work.folder, m.lock))
		}
		return nil
	}
	if err != nil {
		return err
	}

	defer step()
	_, err = f.WriteString(m.owner)
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(m.lock))
	}
	return nil
}

// end releases the lock.
func (m mover) end() error {
	_ = os.Remove(m.index) // already renamed, or no longer needed
	return os.Remove(m.lock)
}

// copyIndex copies the index again. It removes a copy and a lock of a git killed in an earlier
// attempt.
func (m mover) copyIndex() error {
	for _, path := range []string{m.index, m.index + ".lock"} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	content, err := os.ReadFile(filepath.Join(m.dir, "index"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(m.index, content, 0o600)
}

// changes lists the files that differ between two commits.
func (m mover) changes(ctx context.Context, from, to string) (out []change, err error) {
	raw, err := m.run(ctx, "diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", from, to)
	entries := split(raw)
	for i := 0; i+1 < len(entries); i += 2 {
		fields := strings.Fields(strings.TrimPrefix(entries[i], ":"))
		if len(fields) != 5 {
			return nil, fmt.Errorf("git diff-tree printed %q", text.Head(entries[i], 80))
		}
		out = append(out, change{fields[1], fields[3], entries[i+1], fields[4] == "D"})
	}
	return out, err
}

// names runs a command that lists files.
func (m mover) names(ctx context.Context, args ...string) ([]string, error) {
	out, err := m.run(ctx, args...)
	return split(out), err
}

// refresh updates the file information in the index.
func (m mover) refresh(ctx context.Context) error {
	_, err := m.run(ctx, "update-index", "-q", "--refresh")
	if exitCode(err) == 1 { // some files differ
		return nil
	}
	return err
}

// refuse returns an error if the owner has changed one of the files, or one uses a git filter.
func (m mover) refuse(ctx context.Context, from, to string, changes []change) error {
	defer os.Remove(m.index) //nolint:errcheck // a copy
	if err := errors.Join(m.copyIndex(), m.refresh(ctx)); err != nil {
		return err
	}
	if err := m.checkClean(ctx, from, changes); err != nil {
		return err
	}
	return m.refuseFilters(ctx, to, changes)
}

// checkClean returns a DirtyError if one of the files differs from the index. If from is set, the
// index must also match that commit.
func (m mover) checkClean(ctx context.Context, from string, changes []change) error {
	own, err := m.names(ctx, "diff-files", "-z", "--name-only", "--ignore-submodules=all")
	if err != nil {
		return err
	}
	if from != "" {
		staged, err := m.names(ctx, "diff-index", "--cached", "-z", "--name-only", "--no-renames", "--ignore-submodules=all", from)
		if err != nil {
			return err
		}
		own = append(own, staged...)
	}
	known, err := m.names(ctx, "ls-files", "-z")
	if err != nil {
		return err
	}

	changed, tracked := set(own), set(known)
	var dirty []string
	for _, c := range changes {
		untracked := false
		if !c.deleted && !tracked[c.path] {
			_, err := os.Lstat(filepath.Join(m.work.folder, filepath.FromSlash(c.path)))
			untracked = err == nil
		}
		if changed[c.path] || untracked {
			dirty = append(dirty, c.path)
		}
	}
	if len(dirty) > 0 {
		return &DirtyError{m.work.folder, dirty}
	}
	return nil
}

func set(names []string) map[string]bool {
	out := map[string]bool{}
	for _, name := range names {
		out[name] = true
	}
	return out
}

// refuseFilters returns an error if the branch specifies a filter for a file, such as Git LFS.
// Filters are not run here.
func (m mover) refuseFilters(ctx context.Context, to string, changes []change) error {
	g, done, err := m.indexOf(ctx, to)
	if err != nil {
		return err
	}
	defer done()

	var paths strings.Builder
	for _, c := range changes {
		if !c.deleted {
			paths.WriteString(c.path + "\x00")
		}
	}
	out, err := g.runWith(ctx, strings.NewReader(paths.String()), "check-attr", "--cached", "-z", "--stdin", "filter")
	if err != nil {
		return err
	}
	attributes := split(out) // triples of path, attribute and value
	for i := 0; i+2 < len(attributes); i += 3 {
		if filter := attributes[i+2]; filter != "unspecified" && filter != "unset" && filter != "" {
			return fmt.Errorf("%s is kept through the filter %s (Git LFS or the like), which is not run here; merge the branch yourself", text.Visible(attributes[i]), text.Visible(filter))
		}
	}
	return nil
}

// indexOf creates a second index, for a commit.
func (m mover) indexOf(ctx context.Context, commit string) (g git, done func(), err error) {
	path := m.index + "-target"
	g = m.git
	g.env = append(slices.DeleteFunc(slices.Clone(g.env), func(s string) bool { return strings.HasPrefix(s, "GIT_INDEX_FILE=") }), "GIT_INDEX_FILE="+path)
	_ = os.Remove(path + ".lock") // left by a git that was killed
	_, err = g.run(ctx, "read-tree", commit)
	return g, func() { _ = os.Remove(path) }, err
}

// adopt adds the files written by an earlier attempt to the index, so that they do not count as the
// owner's changes. It returns an error for files that match neither commit: either the owner has
// changed them, or git was killed while writing them.
func (m mover) adopt(ctx context.Context, to string, changes []change) error {
	g, done, err := m.indexOf(ctx, to)
	if err != nil {
		return err
	}
	defer done()
	target := mover{git: g}
	if err := target.refresh(ctx); err != nil {
		return err
	}
	differ, err := target.names(ctx, "diff-files", "-z", "--name-only", "--ignore-submodules=all")
	if err != nil {
		return err
	}

	var known strings.Builder
	for _, c := range changes {
		if c.deleted {
			if _, err := os.Lstat(filepath.Join(m.work.folder, filepath.FromSlash(c.path))); errors.Is(err, fs.ErrNotExist) {
				known.WriteString("0 " + strings.Repeat("0", len(c.hash)) + "\t" + c.path + "\x00")
			}
		} else if !slices.Contains(differ, c.path) {
			known.WriteString(c.mode + " " + c.hash + "\t" + c.path + "\x00")
		}
	}
	if _, err := m.runWith(ctx, strings.NewReader(known.String()), "update-index", "-z", "--index-info"); err != nil {
		return err
	}
	if err := m.refresh(ctx); err != nil {
		return err
	}
	return m.checkClean(ctx, "", changes)
}
