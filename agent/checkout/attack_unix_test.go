//go:build unix

package checkout_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rouse/agent/checkout"
	"rouse/agent/sandbox"
)

// TestHostileClones checks that a manipulated clone yields either data or an error. Each attack
// names a program that would leave a canary, or a secret that would come back.
func TestHostileClones(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		attack func(t *testing.T, a attacked)
		want   string // of the error; "" if the branch comes back
	}{
		"programs in the configuration": {func(t *testing.T, a attacked) {
			write(t, filepath.Join(a.dir, ".gitattributes"), "* filter=x diff=x merge=x\n")
			commit(t, a.dir, "attributes")
			for _, key := range []string{"core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "core.gitProxy", "uploadpack.packObjectsHook", "diff.external", "diff.x.textconv", "filter.x.clean", "filter.x.smudge",
				"filter.x.process", "merge.x.driver", "gpg.program", "credential.helper", "alias.pack-objects", "alias.rev-parse", "alias.status", "remote.origin.uploadpack", "sequence.editor", "core.alternateRefsCommand"} {
				git(t, a.dir, "config", key, "touch "+a.canary+";:")
			}
			git(t, a.dir, "config", "filter.x.required", "true")
			os.Remove(a.canary)
		}, ""},
		"included configuration": {func(t *testing.T, a attacked) {
			write(t, filepath.Join(a.dir, ".git/more"), "[core]\n\tfsmonitor = touch "+a.canary+";:\n\thooksPath = "+a.dir+"/.git/hooks\n[include]\n\tpath = "+a.secret+"\n")
			git(t, a.dir, "config", "include.path", "more")
		}, ""},
		"a partial clone": {func(t *testing.T, a attacked) {
			hash := git(t, a.dir, "rev-parse", "HEAD:new.txt")
			git(t, a.dir, "config", "extensions.partialClone", "evil")
			git(t, a.dir, "config", "remote.evil.promisor", "true")
			git(t, a.dir, "config", "remote.evil.url", "ext::sh -c touch% "+a.canary)
			git(t, a.dir, "config", "remote.evil.uploadpack", "touch "+a.canary+";:")
			removeObject(t, a.dir, hash)
		}, "git pack-objects failed"},
		"hooks": {func(t *testing.T, a attacked) {
			for _, hook := range []string{"post-checkout", "reference-transaction", "pre-push", "post-index-change", "pre-auto-gc", "update", "post-update"} {
				write(t, filepath.Join(a.dir, ".git/hooks", hook), "#!/bin/sh\ntouch "+a.canary+"\n")
				os.Chmod(filepath.Join(a.dir, ".git/hooks", hook), 0o755)
			}
		}, ""},
		"alternates to another repository": {func(t *testing.T, a attacked) {
			// The commit refers to a file of a repository that the agent cannot read.
			write(t, filepath.Join(a.dir, ".git/objects/info/alternates"), filepath.Join(a.private, ".git/objects")+"\n"+filepath.Join(a.repo, ".git/objects")+"\n")
			forge(t, a, git(t, a.private, "rev-parse", "HEAD:secret.txt"))
		}, "git pack-objects failed"},
		"alternates of http": {func(t *testing.T, a attacked) {
			write(t, filepath.Join(a.dir, ".git/objects/info/http-alternates"), "http://127.0.0.1:1/\n")
		}, ""},
		"alternates to a device": {func(t *testing.T, a attacked) {
			os.Remove(filepath.Join(a.dir, ".git/objects/info/alternates"))
			if err := syscall.Mkfifo(filepath.Join(a.dir, ".git/objects/info/alternates"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, ""}, // git either reports missing objects, or waits and is killed
		"objects as links to secrets": {func(t *testing.T, a attacked) {
			hash := git(t, a.dir, "rev-parse", "HEAD:new.txt")
			removeObject(t, a.dir, hash)
			if err := os.Symlink(a.secret, filepath.Join(a.dir, ".git/objects", hash[:2], hash[2:])); err != nil {
				t.Fatal(err)
			}
		}, "failed"},
		"objects as FIFOs": {func(t *testing.T, a attacked) {
			hash := git(t, a.dir, "rev-parse", "HEAD:new.txt")
			removeObject(t, a.dir, hash)
			if err := syscall.Mkfifo(filepath.Join(a.dir, ".git/objects", hash[:2], hash[2:]), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "ended: timeout"},
		"an object with other content": {func(t *testing.T, a attacked) {
			one, two := git(t, a.dir, "rev-parse", "HEAD:new.txt"), git(t, a.dir, "rev-parse", "HEAD")
			content := read(t, filepath.Join(a.dir, ".git/objects", two[:2], two[2:]))
			removeObject(t, a.dir, one)
			write(t, filepath.Join(a.dir, ".git/objects", one[:2], one[2:]), content)
		}, "failed"},
		"a branch as a link to a secret": {func(t *testing.T, a attacked) {
			branch(t, a, func(path string) error { return os.Symlink(a.secret, path) })
		}, "has no branch"},
		"a branch as a link to another repository": {func(t *testing.T, a attacked) {
			branch(t, a, func(path string) error {
				return os.Symlink(filepath.Join(a.private, ".git/refs/heads/main"), path)
			})
		}, "has no branch"},
		"a branch as a FIFO": {func(t *testing.T, a attacked) {
			branch(t, a, func(path string) error { return syscall.Mkfifo(path, 0o600) })
		}, ""},
		"a branch that is a word": {func(t *testing.T, a attacked) {
			branch(t, a, func(path string) error { return os.WriteFile(path, []byte("--upload-pack=touch\n"), 0o600) })
		}, "has no branch"},
		"a branch that is symbolic": {func(t *testing.T, a attacked) {
			branch(t, a, func(path string) error { return os.WriteFile(path, []byte("ref: ../../../../../etc/passwd\n"), 0o600) })
		}, "has no branch"},
		"no branch": {func(t *testing.T, a attacked) {
			git(t, a.dir, "checkout", "-q", "--detach")
			git(t, a.dir, "branch", "-q", "-D", "rouse/fix-1")
		}, "has no branch"},
		".git as a link to another repository": {func(t *testing.T, a attacked) {
			if err := os.Rename(filepath.Join(a.dir, ".git"), filepath.Join(a.dir, "away")); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join(a.private, ".git"), filepath.Join(a.dir, ".git")); err != nil {
				t.Fatal(err)
			}
		}, "has no branch"},
		".git as a file": {func(t *testing.T, a attacked) {
			if err := os.Rename(filepath.Join(a.dir, ".git"), filepath.Join(a.dir, "away")); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(a.dir, ".git"), "gitdir: "+filepath.Join(a.private, ".git")+"\n")
		}, "has no branch"},
		".git as a file to the mirror": {func(t *testing.T, a attacked) {
			if err := os.Rename(filepath.Join(a.dir, ".git"), filepath.Join(a.dir, "away")); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(a.dir, ".git"), "gitdir: "+a.clone.Mirror+"\n")
		}, "has no branch"},
		"a common folder elsewhere": {func(t *testing.T, a attacked) {
			write(t, filepath.Join(a.dir, ".git/commondir"), filepath.Join(a.private, ".git")+"\n")
		}, "has no branch"},
		"no .git": {func(t *testing.T, a attacked) { os.RemoveAll(filepath.Join(a.dir, ".git")) }, "has no branch"},
		"closed folders": {func(t *testing.T, a attacked) {
			if os.Getuid() == 0 {
				git(t, a.dir, "checkout", "-q", "--detach")
				git(t, a.dir, "branch", "-q", "-D", "rouse/fix-1")
			}
			os.Chmod(filepath.Join(a.dir, ".git"), 0)
		}, "has no branch"},
		"a huge file": {func(t *testing.T, a attacked) {
			f, err := os.Create(filepath.Join(a.dir, "huge"))
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Truncate(64 << 20); err != nil { // 64 kB in a pack
				t.Fatal(err)
			}
			f.Close()
			commit(t, a.dir, "huge")
		}, "are larger than 8 MiB together"},
		"a huge pack": {func(t *testing.T, a attacked) {
			noise := make([]byte, 9<<20)
			x := uint64(88172645463325252)
			for i := range noise {
				x ^= x << 13
				x ^= x >> 7
				x ^= x << 17
				noise[i] = byte(x)
			}
			write(t, filepath.Join(a.dir, "noise"), string(noise))
			commit(t, a.dir, "noise")
		}, "are larger than 8 MiB, and are not brought back"},
		"a tree that unfolds": {func(t *testing.T, a attacked) {
			tree := mktree(t, a.dir, "100644 blob "+git(t, a.dir, "rev-parse", "HEAD:a.txt"), 10)
			for range 9 { // 10^10 files
				tree = mktree(t, a.dir, "040000 tree "+tree, 10)
			}
			git(t, a.dir, "reset", "-q", "--soft", git(t, a.dir, "commit-tree", "-p", "HEAD", "-m", "bomb", tree))
		}, "has more than 2000000 files"},
		"a file called .git": {func(t *testing.T, a attacked) {
			blob := git(t, a.dir, "rev-parse", "HEAD:a.txt")
			forgeTree(t, a, "100644 .git\x00", blob)
		}, "are refused"},
		"a file called ..": {func(t *testing.T, a attacked) {
			forgeTree(t, a, "100644 ..\x00", git(t, a.dir, "rev-parse", "HEAD:a.txt"))
		}, "are refused"},
		"a file with a slash": {func(t *testing.T, a attacked) {
			forgeTree(t, a, "100644 ../../x\x00", git(t, a.dir, "rev-parse", "HEAD:a.txt"))
		}, "are refused"},
		"modules that run a program": {func(t *testing.T, a attacked) {
			write(t, filepath.Join(a.dir, ".gitmodules"), "[submodule \"x\"]\n\tpath = x\n\turl = -u./payload\n\tupdate = !touch "+a.canary+"\n")
			commit(t, a.dir, "modules")
		}, "are refused"},
		"modules with a name that leads out": {func(t *testing.T, a attacked) {
			write(t, filepath.Join(a.dir, ".gitmodules"), "[submodule \"../../x\"]\n\tpath = x\n\turl = https://example.com/x\n")
			commit(t, a.dir, "modules")
		}, "are refused"},
		"modules as a link": {func(t *testing.T, a attacked) {
			forgeTree(t, a, "120000 .gitmodules\x00", git(t, a.dir, "rev-parse", "HEAD:a.txt"))
		}, "are refused"},
		"attributes that hide the diff": {func(t *testing.T, a attacked) {
			write(t, filepath.Join(a.dir, ".gitattributes"), "* -diff -text merge=ours\n*.txt binary\n")
			commit(t, a.dir, "attributes")
		}, ""},
		"grafts and replaced objects": {func(t *testing.T, a attacked) {
			git(t, a.dir, "replace", "HEAD", "HEAD~1")
			write(t, filepath.Join(a.dir, ".git/info/grafts"), git(t, a.dir, "rev-parse", "HEAD")+"\n")
		}, ""},
		"an index that lies": {func(t *testing.T, a attacked) {
			write(t, filepath.Join(a.dir, ".git/index"), "DIRC\x00\x00\x00\x09nonsense")
		}, ""},
	} {
		eachTier(t, name, func(t *testing.T, a attacked) {
			c.attack(t, a)
			owners := git(t, a.repo, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/main", "refs/tags")

			begin := time.Now()
			res, err := a.store.Collect(t.Context(), a.clone)
			if took := time.Since(begin); took > time.Minute {
				t.Errorf("it took %s", took)
			}
			switch {
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v", err)
			case err == nil:
				diff, err := a.store.Diff(t.Context(), res, 1<<20)
				if err != nil || !strings.Contains(diff, "+new\n") {
					t.Error("the diff is hidden:", err, diff)
				}
				if _, err := a.store.Apply(t.Context(), res, checkout.Merge); err != nil && !strings.Contains(err.Error(), "kept through the filter x") {
					t.Error(err)
				}
			default:
				if out := git(t, a.repo, "branch", "--list", "rouse/*"); out != "" {
					t.Error("it was refused, and there is a branch", out)
				}
				if out := git(t, a.repo, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/main", "refs/tags"); out != owners {
					t.Error("it was refused, and branches have moved:", out)
				}
				t.Log(err)
			}

			if _, err := os.Lstat(a.canary); err == nil {
				t.Error("a program was run")
			}
			if all, _ := tryGit(t, a.repo, "log", "-p", "--all"); strings.Contains(all+errText(err), "top secret") {
				t.Error("a secret came back")
			}
			if out, err := tryGit(t, a.repo, "fsck", "--strict"); err != nil {
				t.Error("the owner's repository is damaged:", out)
			}
			if err := a.store.Discard(t.Context(), "1"); err != nil {
				t.Error(err)
			}
			if left, _ := os.ReadDir(filepath.Join(a.store.Dir, "runs")); len(left) > 0 {
				t.Error("left", left)
			}
		})
	}
}

// eachTier runs an attack on the strongest tier of this machine. With ROUSE_TEST_ATTACKS=all it
// also uses the weaker tier.
func eachTier(t *testing.T, name string, attack func(t *testing.T, a attacked)) {
	t.Helper()
	tiers := []sandbox.Tier{sandbox.TierNamespaces}
	if os.Getenv("ROUSE_TEST_ATTACKS") == "all" {
		tiers = append(tiers, sandbox.TierLandlock)
	}
	for _, tier := range tiers {
		t.Run(name+" on "+string(tier), func(t *testing.T) {
			t.Parallel()
			a := newAttacked(t)
			if tier == sandbox.TierLandlock {
				a.store.Sandbox = weaker(t)
			}
			attack(t, a)
		})
	}
}

func weaker(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	box, err := sandbox.New(sandbox.Options{MaxTier: sandbox.TierLandlock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { box.Close() })
	return box
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// attacked is the clone of a run with the targets of an attack.
type attacked struct {
	store           *checkout.Store
	clone           checkout.Clone
	dir, repo       string
	private, secret string // a repository and a file that the agent cannot read
	canary          string
}

func newAttacked(t *testing.T) attacked {
	t.Helper()
	a := attacked{store: store(t), repo: owner(t), private: owner(t)}
	a.store.MaxPack, a.store.MaxTime = 8<<20, 10*time.Second
	git(t, a.repo, "tag", "v1")
	write(t, filepath.Join(a.private, "secret.txt"), "top secret\n")
	commit(t, a.private, "top secret")
	a.secret, a.canary = filepath.Join(a.private, "secret.txt"), filepath.Join(t.TempDir(), "canary")
	a.clone = made(t, a.store, a.repo, "1")
	a.dir = a.clone.Dir
	write(t, filepath.Join(a.dir, "new.txt"), "new\n")
	commit(t, a.dir, "work")
	return a
}

func removeObject(t *testing.T, dir, hash string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, ".git/objects", hash[:2], hash[2:])); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
}

// branch replaces the file of the branch.
func branch(t *testing.T, a attacked, by func(path string) error) {
	t.Helper()
	path := filepath.Join(a.dir, ".git/refs/heads/rouse/fix-1")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := by(path); err != nil {
		t.Fatal(err)
	}
}

// mktree creates a tree of n entries with the same content.
func mktree(t *testing.T, dir, entry string, n int) string {
	t.Helper()
	var in strings.Builder
	for i := range n {
		in.WriteString(entry + "\t" + string(rune('a'+i)) + "\n")
	}
	return gitIn(t, dir, in.String(), "mktree")
}

// forge commits a tree with a file whose content is missing.
func forge(t *testing.T, a attacked, blob string) {
	t.Helper()
	tree := gitIn(t, a.dir, "100644 blob "+blob+"\tstolen.txt\n", "mktree", "--missing")
	git(t, a.dir, "update-ref", "refs/heads/rouse/fix-1", git(t, a.dir, "commit-tree", "-p", a.clone.Base, "-m", "forged", tree))
}

// forgeTree commits a tree with one entry that git itself would not create.
func forgeTree(t *testing.T, a attacked, entry, blob string) {
	t.Helper()
	var raw []byte
	for i := 0; i < len(blob); i += 2 {
		n, err := strconv.ParseUint(blob[i:i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, byte(n))
	}
	tree := gitIn(t, a.dir, entry+string(raw), "hash-object", "-t", "tree", "-w", "--stdin", "--literally")
	git(t, a.dir, "update-ref", "refs/heads/rouse/fix-1", git(t, a.dir, "commit-tree", "-p", a.clone.Base, "-m", "forged", tree))
}

func gitIn(t *testing.T, dir, in string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "git", args...)
	c.Dir, c.Stdin = dir, strings.NewReader(in)
	c.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull)
	out, err := c.Output()
	if err != nil {
		t.Fatalf("git %v: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}
