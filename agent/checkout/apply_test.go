package checkout_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rouse/agent/checkout"
)

// worked makes a clone in which the agent has changed a.txt, added new.txt and removed b.txt, in two commits.
func worked(t *testing.T, s *checkout.Store, repo, run string) checkout.Result {
	t.Helper()
	c := made(t, s, repo, run)
	write(t, filepath.Join(c.Dir, "a.txt"), "one\n2\nthree\n")
	commit(t, c.Dir, "fix two")
	write(t, filepath.Join(c.Dir, "dir/new.txt"), "new\n")
	if err := os.Remove(filepath.Join(c.Dir, "b.txt")); err != nil {
		t.Fatal(err)
	}
	commit(t, c.Dir, "add new\n\nwith a body")
	return collected(t, s, c)
}

func TestApply(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		how  checkout.How
		then func(t *testing.T, repo string) // changes of the owner before Apply
		log  string                          // subjects and authors of the target, newest first
	}{
		"fast-forward": {checkout.Merge, nil, "add new|coder fix two|coder first|Olga Owner"},
		"merge": {checkout.Merge, func(t *testing.T, repo string) {
			write(t, filepath.Join(repo, "c.txt"), "c\n")
			commit(t, repo, "meanwhile")
		}, "Merge branch 'rouse/fix-1' into main|Olga Owner add new|coder fix two|coder meanwhile|Olga Owner first|Olga Owner"},
		"cherry-pick": {checkout.CherryPick, func(t *testing.T, repo string) {
			write(t, filepath.Join(repo, "c.txt"), "c\n")
			commit(t, repo, "meanwhile")
		}, "add new|coder fix two|coder meanwhile|Olga Owner first|Olga Owner"},
		"not checked out": {checkout.Merge, func(t *testing.T, repo string) {
			write(t, filepath.Join(repo, "c.txt"), "c\n")
			commit(t, repo, "meanwhile")
			git(t, repo, "checkout", "-q", "-b", "other", "HEAD~1")
		}, "Merge branch 'rouse/fix-1' into main|Olga Owner add new|coder fix two|coder meanwhile|Olga Owner first|Olga Owner"},
		"in a linked worktree": {checkout.Merge, func(t *testing.T, repo string) {
			git(t, repo, "checkout", "-q", "-b", "other")
			git(t, repo, "worktree", "add", "-q", filepath.Join(t.TempDir(), "linked"), "main")
		}, "add new|coder fix two|coder first|Olga Owner"},
		"beside own changes": {checkout.Merge, func(t *testing.T, repo string) {
			write(t, filepath.Join(repo, "own.txt"), "mine\n")
			commit(t, repo, "own")
			write(t, filepath.Join(repo, "own.txt"), "mine, changed\n")
			write(t, filepath.Join(repo, "untracked.txt"), "mine\n")
		}, "Merge branch 'rouse/fix-1' into main|Olga Owner add new|coder fix two|coder own|Olga Owner first|Olga Owner"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo, s := owner(t), store(t)
			// Hooks and monitors of the owner do not run.
			canary := filepath.Join(t.TempDir(), "canary")
			for _, hook := range []string{"post-merge", "post-checkout", "reference-transaction", "post-index-change"} {
				write(t, filepath.Join(repo, ".git/hooks", hook), "#!/bin/sh\ntouch "+canary+"\n")
				os.Chmod(filepath.Join(repo, ".git/hooks", hook), 0o755)
			}
			res := worked(t, s, repo, "1")
			if _, err := os.Lstat(canary); err == nil {
				t.Error("a hook was run")
			}
			if c.then != nil {
				c.then(t, repo)
			}
			before, _ := tryGit(t, repo, "status", "--porcelain")
			head := git(t, repo, "rev-parse", "HEAD")
			os.Remove(canary)

			for range 2 { // the second Apply changes nothing
				applied, err := s.Apply(t.Context(), res, c.how)
				if err != nil {
					t.Fatal(err)
				}
				if got := git(t, repo, "rev-parse", "main"); applied.Commit != got || applied.Branch != "main" {
					t.Fatalf("%+v, and main is %s", applied, got)
				}
			}
			if _, err := os.Lstat(canary); err == nil {
				t.Error("a hook was run")
			}
			if got := strings.ReplaceAll(git(t, repo, "log", "--topo-order", "--format=%s|%an", "main"), "\n", " "); got != c.log {
				t.Errorf("log %q", got)
			}
			if got := git(t, repo, "show", "main:a.txt") + git(t, repo, "show", "main:dir/new.txt") + git(t, repo, "ls-tree", "--name-only", "main", "b.txt"); got != "one\n2\nthreenew" {
				t.Errorf("files %q", got)
			}
			after, _ := tryGit(t, repo, "status", "--porcelain")
			if after != before {
				t.Errorf("status was %q and is %q", before, after)
			}
			if git(t, repo, "symbolic-ref", "--short", "HEAD") == "main" {
				if read(t, filepath.Join(repo, "a.txt")) != "one\n2\nthree\n" || head == git(t, repo, "rev-parse", "HEAD") {
					t.Error("the worktree did not follow")
				}
			} else if head != git(t, repo, "rev-parse", "HEAD") {
				t.Error("another branch moved")
			}
			git(t, repo, "fsck", "--strict")
			if left, _ := filepath.Glob(filepath.Join(repo, ".git/*rouse*")); len(left) > 0 {
				t.Error("left", left)
			}
			if entries, _ := os.ReadDir(filepath.Join(s.Dir, "scratch")); len(entries) > 0 {
				t.Error("left", entries)
			}
			if err := s.Discard(t.Context(), "1"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		then func(t *testing.T, repo string)
		want string
	}{
		"a conflict": {func(t *testing.T, repo string) {
			write(t, filepath.Join(repo, "a.txt"), "one\nzwei\nthree\n")
			commit(t, repo, "meanwhile")
		}, "conflicts with main in a.txt; nothing was changed"},
		"a removed file": {func(t *testing.T, repo string) {
			git(t, repo, "rm", "-q", "a.txt")
			commit(t, repo, "meanwhile")
		}, "conflicts with main in a.txt"},
		"unstaged changes": {func(t *testing.T, repo string) {
			write(t, filepath.Join(repo, "a.txt"), "mine\n")
		}, "would be overwritten, with changes that are not committed: a.txt"},
		"staged changes": {func(t *testing.T, repo string) {
			write(t, filepath.Join(repo, "b.txt"), "mine\n")
			git(t, repo, "add", "-A")
		}, "would be overwritten, with changes that are not committed: b.txt"},
		"an untracked file": {func(t *testing.T, repo string) {
			write(t, filepath.Join(repo, "dir/new.txt"), "mine\n")
		}, "would be overwritten, with changes that are not committed: dir/new.txt"},
		"an ignored file": {func(t *testing.T, repo string) {
			write(t, filepath.Join(repo, ".git/info/exclude"), "dir\n")
			write(t, filepath.Join(repo, "dir/new.txt"), "mine\n")
		}, "would be overwritten, with changes that are not committed: dir/new.txt"},
		"a file in the place of a folder": {func(t *testing.T, repo string) {
			write(t, filepath.Join(repo, "dir"), "mine\n")
		}, "dir"},
		"an open merge": {func(t *testing.T, repo string) {
			write(t, filepath.Join(repo, ".git/MERGE_HEAD"), git(t, repo, "rev-parse", "HEAD")+"\n")
		}, "a merge is not finished"},
		"another git": {func(t *testing.T, repo string) {
			write(t, filepath.Join(repo, ".git/index.lock"), "")
		}, "another git is at work"},
		"a filter": {func(t *testing.T, repo string) {
			write(t, filepath.Join(repo, ".gitattributes"), "*.txt filter=lfs\n")
			commit(t, repo, "attributes")
		}, "is kept through the filter lfs"},
		"a removed branch": {func(t *testing.T, repo string) {
			git(t, repo, "checkout", "-q", "-b", "other")
			git(t, repo, "branch", "-q", "-D", "main")
		}, "the branch main is not in"},
		"a changed result": {func(t *testing.T, repo string) {
			git(t, repo, "branch", "-f", "rouse/fix-1", "main")
		}, "was shown; look at it again"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo, s := owner(t), store(t)
			res := worked(t, s, repo, "1")
			c.then(t, repo)
			before := state(t, repo)
			for range 2 {
				_, err := s.Apply(t.Context(), res, checkout.Merge)
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatal("error", err)
				}
			}
			if after := state(t, repo); after != before {
				t.Errorf("it was\n%s\nand is\n%s", before, after)
			}
		})
	}

	repo, s := owner(t), store(t)
	res := worked(t, s, repo, "1")
	write(t, filepath.Join(repo, "a.txt"), "mine\n")
	commit(t, repo, "mine")
	_, err := s.Apply(t.Context(), res, checkout.CherryPick)
	conflict, ok := errors.AsType[*checkout.ConflictError](err)
	if !ok || !slices.Equal(conflict.Files, []string{"a.txt"}) || conflict.Commit != res.Commits[1].Hash {
		t.Error(err)
	}
}

// state returns everything that the owner sees of a repository.
func state(t *testing.T, repo string) string {
	t.Helper()
	status, _ := tryGit(t, repo, "status", "--porcelain", "--ignored")
	refs, _ := tryGit(t, repo, "for-each-ref")
	out := status + refs + git(t, repo, "ls-files", "-s")
	err := filepath.WalkDir(repo, func(path string, e os.DirEntry, err error) error {
		if e != nil && e.Name() == ".git" {
			names, _ := os.ReadDir(path)
			for _, n := range names {
				out += n.Name() + " "
			}
			return filepath.SkipDir
		}
		if err == nil && !e.IsDir() {
			out += path + "=" + read(t, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
