//go:build unix

package checkout_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/sandbox"
)

// TestGitOfTheAgent checks that git works in a clone on each sandbox, and that neither the mirror
// nor the owner's repository can be written.
func TestGitOfTheAgent(t *testing.T) {
	t.Parallel()
	for _, tier := range []sandbox.Tier{sandbox.TierNamespaces, sandbox.TierLandlock} {
		t.Run(string(tier), func(t *testing.T) {
			t.Parallel()
			repo, s := owner(t), store(t)
			git(t, repo, "branch", "topic")
			if tier == sandbox.TierLandlock {
				s.Sandbox = weaker(t)
			}
			c := made(t, s, repo, "1")
			var out bytes.Buffer
			ended, err := s.Sandbox.Run(t.Context(), sandbox.Command{
				Argv: []string{"sh", "-e", "-c", `git status; git log --oneline; git diff; git show --stat; git blame a.txt
echo 2 >> a.txt; git add a.txt; git commit -q -m two
git switch -q -c side; echo side > side.txt; git add .; git commit -q -m side
git switch -q rouse/fix-1; git merge -q --no-ff -m merged side; git rebase -q origin/topic
echo 3 >> a.txt; git stash -q; git stash pop -q; git commit -q -a --amend --no-edit; git fetch -q origin; git gc -q; git fsck
! touch "$MIRROR/x" 2>/dev/null; ! git -C "$MIRROR" branch planted 2>/dev/null; ! cat "$OWNER/a.txt" 2>/dev/null
! git push -q origin HEAD:refs/heads/planted 2>/dev/null`},
				Dir: c.Dir, Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.Dir, "MIRROR=" + c.Mirror, "OWNER=" + repo},
				Write: []string{c.Dir}, Read: []string{c.Mirror}, Stdout: &out, Stderr: &out,
			})
			if err != nil || ended.Exit != 0 {
				t.Fatal(ended, err, out.String())
			}
			if res := collected(t, s, c); len(res.Commits) != 2 || git(t, repo, "show", "rouse/fix-1:side.txt") != "side" || strings.Join(res.Notes, ";") != "commits outside of the branch rouse/fix-1 stay in the clone: 1" {
				t.Errorf("%+v\n%s", res, out.String())
			}
			if _, err := os.Lstat(filepath.Join(c.Mirror, "refs/heads/planted")); err == nil || git(t, repo, "branch", "--list", "planted") != "" {
				t.Error("the agent wrote the mirror")
			}
		})
	}
}

// TestLocksOfKilledGit checks that the next attempt can work in a clone in which git was killed,
// and that nothing outside the clone is removed.
func TestLocksOfKilledGit(t *testing.T) {
	t.Parallel()
	repo, s := owner(t), store(t)
	c := made(t, s, repo, "1")
	for _, name := range []string{"index.lock", "HEAD.lock", "refs/heads/rouse/fix-1.lock"} {
		write(t, filepath.Join(c.Dir, ".git", name), "")
	}
	again := made(t, s, repo, "1")
	write(t, filepath.Join(again.Dir, "a.txt"), "two\n")
	commit(t, again.Dir, "two")

	outside := t.TempDir()
	write(t, filepath.Join(outside, "index.lock"), "mine")
	if err := os.Rename(filepath.Join(c.Dir, ".git"), filepath.Join(c.Dir, "moved")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(c.Dir, ".git")); err != nil {
		t.Fatal(err)
	}
	made(t, s, repo, "1")
	if read(t, filepath.Join(outside, "index.lock")) != "mine" {
		t.Error("a lock outside of the clone was removed")
	}
}
