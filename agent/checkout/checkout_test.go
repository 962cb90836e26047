package checkout_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/checkout"
)

func TestMakeAndCollect(t *testing.T) {
	t.Parallel()
	repo, s := owner(t), store(t)
	c := made(t, s, repo, "7")

	again, err := s.Make(t.Context(), "7", checkout.Spec{Repo: repo, Ref: "main", Branch: "other"})
	if err != nil || again.Branch != c.Branch || !again.Made.Equal(c.Made) {
		t.Fatalf("a second attempt got %+v, %v", again, err)
	}

	// All git commands work in the clone.
	if got := git(t, c.Dir, "status", "--short", "--branch"); got != "## rouse/fix-7" {
		t.Fatal(got)
	}
	write(t, filepath.Join(c.Dir, "a.txt"), "one\n2\nthree\n")
	git(t, c.Dir, "stash")
	git(t, c.Dir, "stash", "pop")
	commit(t, c.Dir, "fix two")
	write(t, filepath.Join(c.Dir, "new.txt"), "new\n")
	head := commit(t, c.Dir, "add new")
	write(t, filepath.Join(c.Dir, "left.txt"), "uncommitted\n")

	for range 2 {
		res := collected(t, s, c)
		if res.Head != head || len(res.Commits) != 2 || res.Commits[0].Subject != "add new" || res.Commits[1].Author != "coder" || res.Uncommitted != 1 {
			t.Fatalf("%+v", res)
		}
		if len(res.Files) != 2 || res.Files[0] != (checkout.FileStat{Path: "a.txt", Added: 1, Removed: 1}) || res.Files[1].Path != "new.txt" {
			t.Fatalf("%+v", res.Files)
		}
		diff, err := s.Diff(t.Context(), res, 10_000)
		if err != nil || !strings.Contains(diff, "-two\n+2\n") || !strings.Contains(diff, "2 files changed") {
			t.Fatal(err, diff)
		}
	}
	if got := git(t, repo, "rev-parse", "rouse/fix-7"); got != head {
		t.Fatal(got)
	}
	if got := git(t, repo, "status", "--short", "--branch"); got != "## main" {
		t.Fatal(got)
	}
	git(t, repo, "fsck", "--strict")

	// The branch moves forward with the run.
	head = commit(t, c.Dir, "the rest")
	if res := collected(t, s, c); res.Head != head || len(res.Commits) != 3 || git(t, repo, "rev-parse", "rouse/fix-7") != head {
		t.Fatalf("%+v", res)
	}

	// Collected commits stay, even if the agent resets its branch.
	git(t, c.Dir, "reset", "-q", "--hard", c.Base)
	if res := collected(t, s, c); len(res.Commits) != 0 || !strings.Contains(strings.Join(res.Notes, ";"), "stays as it was brought back before") || git(t, repo, "rev-parse", "rouse/fix-7") != head {
		t.Fatalf("%+v", res)
	}

	if err := s.Discard(t.Context(), "7"); err != nil {
		t.Fatal(err)
	}
	if out, err := tryGit(t, repo, "rev-parse", "--verify", "rouse/fix-7"); err == nil {
		t.Fatal("the branch is still there", out)
	}
	if _, err := s.Open("7"); !errors.Is(err, checkout.ErrNone) {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(filepath.Join(s.Dir, "runs")); len(entries) != 0 {
		t.Fatal(entries)
	}
}

func TestCloneHasNoMoreThanBranchesAndTags(t *testing.T) {
	t.Parallel()
	repo, s := owner(t), store(t)
	write(t, filepath.Join(repo, "a.txt"), "stashed secret\n")
	git(t, repo, "stash")
	stash := git(t, repo, "rev-parse", "stash@{0}")
	write(t, filepath.Join(repo, "a.txt"), "amended secret\n")
	gone := commit(t, repo, "secret")
	git(t, repo, "reset", "-q", "--hard", "HEAD~1")
	write(t, filepath.Join(repo, ".gitignore"), ".env\n")
	commit(t, repo, "ignore")
	write(t, filepath.Join(repo, ".env"), "KEY=secret\n")
	git(t, repo, "tag", "v1")

	c := made(t, s, repo, "1")
	for _, hash := range []string{stash, gone} {
		if out, err := tryGit(t, c.Dir, "cat-file", "-t", hash); err == nil {
			t.Errorf("the clone has %s: %s", hash, out)
		}
	}
	if _, err := os.Lstat(filepath.Join(c.Dir, ".env")); err == nil {
		t.Error("the clone has an ignored file")
	}
	if got := git(t, c.Dir, "rev-parse", "v1^{commit}"); got != c.Base {
		t.Error("the tag is missing", got)
	}
	_, err := s.Make(t.Context(), "2", checkout.Spec{Repo: repo, Ref: gone, Branch: "x"})
	if err == nil || !strings.Contains(err.Error(), "that a branch or a tag reaches") {
		t.Error(err)
	}
}

// TestDroppedCommits checks that commits of a removed branch leave the mirror once no clone borrows
// from it.
func TestDroppedCommits(t *testing.T) {
	t.Parallel()
	repo, s := owner(t), store(t)
	git(t, repo, "checkout", "-q", "-b", "merged")
	write(t, filepath.Join(repo, "merged.txt"), "merged\n")
	merged := commit(t, repo, "merged")
	git(t, repo, "checkout", "-q", "-b", "secret")
	write(t, filepath.Join(repo, "secret.txt"), "secret\n")
	secret := commit(t, repo, "secret")
	git(t, repo, "checkout", "-q", "main")
	git(t, repo, "merge", "-q", "merged")
	has := func(c checkout.Clone, hash string) bool {
		_, err := tryGit(t, c.Dir, "cat-file", "-e", hash)
		return err == nil
	}

	if c := made(t, s, repo, "1"); !has(c, secret) || !has(c, merged) {
		t.Error("the first clone has not all branches")
	}
	git(t, repo, "branch", "-q", "-D", "merged", "secret")
	if c := made(t, s, repo, "2"); !has(c, secret) {
		t.Error("objects were removed from which the first clone borrows")
	}
	for _, run := range []string{"1", "2"} {
		if err := s.Discard(t.Context(), run); err != nil {
			t.Fatal(err)
		}
	}
	if c := made(t, s, repo, "3"); has(c, secret) || !has(c, merged) {
		t.Error("the mirror has a removed commit, or lacks one that a branch reaches")
	}
}
