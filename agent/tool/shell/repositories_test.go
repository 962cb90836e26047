package shell_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/sandbox"
)

// onTiers runs a test with each tier of this machine that confines files.
func onTiers(t *testing.T, test func(*testing.T, *bench)) {
	t.Helper()
	needGit(t)
	for _, tier := range []sandbox.Tier{sandbox.TierNamespaces, sandbox.TierLandlock} {
		t.Run(string(tier), func(t *testing.T) {
			t.Parallel()
			b := newBench(t).confined()
			box, err := sandbox.New(sandbox.Options{MaxTier: tier})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = box.Close() })
			if has, why := box.Tier(t.Context()); has != tier {
				t.Skip("the machine does not have this tier: ", why)
			}
			b.options.Launcher.Sandbox = box
			test(t, b)
		})
	}
}

// owns runs a script as the owner in the working folder.
func (b *bench) owns(script string) {
	b.t.Helper()
	cmd := exec.CommandContext(b.t.Context(), "sh", "-ec", "git() { command git -c user.name=o -c user.email=o@example.com -c init.defaultBranch=main -c protocol.file.allow=always \"$@\"; }\n"+script)
	cmd.Dir, cmd.Env = b.dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.t.TempDir(), "GIT_CONFIG_NOSYSTEM=1"}
	if out, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("%v %s", err, out)
	}
}

// secretConfig is a configuration with programs, files and tokens.
const secretConfig = `
[remote "origin"]
	url = https://user:t0ken@example.com/x.git
	fetch = +refs/heads/*:refs/remotes/origin/*
[http]
	extraHeader = "Authorization: t0ken"
[core]
	fsmonitor = "touch %[1]s/ran;:"
	hooksPath = %[1]s
[filter "evil"]
	clean = "touch ran-clean; cat"
	required = true
[diff]
	external = "touch ran-diff; :"
[include]
	path = ../more
`

// TestGitReads checks that git can read the owner's repositories on each tier, and that their
// configurations stay hidden.
func TestGitReads(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{"plain": "", "with a remote": "[remote \"origin\"]\n\turl = git@example.com:x/y.git\n", "with a comment": "# t0ken\n", "with secrets": secretConfig} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onTiers(t, func(t *testing.T, b *bench) {
				b.owns(`git init -q .; echo one > a; echo '* filter=evil' > .gitattributes; git add .; git commit -qm first; git branch side; echo two > a; mkdir sub; echo x > sub/new`)
				f, err := os.OpenFile(filepath.Join(b.dir, ".git/config"), os.O_APPEND|os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := f.WriteString(strings.ReplaceAll(config, "%[1]s", b.dir)); err != nil {
					t.Fatal(err)
				}
				f.Close()
				b.write("more", "[core]\n\tfsmonitor = touch ran-more;:\n")
				before := tree(t, b.dir, ".git")

				for command, want := range map[string]string{
					"git status --porcelain=v1 -b": "## main", "git status": "modified:   a", "git diff HEAD": "+two", "git rev-parse --show-toplevel": b.dir,
					"git log -n 5 --oneline": "first", "git show --stat": "first", "git blame a": "two", "git branch --list": "side", "git ls-files": ".gitattributes",
					"git worktree list": "[main]", "git grep -n two": "a:1:two", "cd sub && git status --short": "?? ./", "cd sub && git rev-parse --show-prefix": "sub/",
					"git -C sub log --oneline": "first", "git cat-file -p HEAD:a": "one", "git stash list; git for-each-ref": "refs/heads/side", "git config --get core.bare": "false",
				} {
					_, got := b.run(command)
					if out := got["stdout"].(string); got["exit_code"] != 0.0 || !strings.Contains(out, want) || got["stderr"] != "" {
						t.Errorf("%s: %v", command, got)
					}
				}
				_, got := b.run("cat .git/config; git config --list; grep -r t0ken .git; :")
				if strings.Contains(got["stdout"].(string)+got["stderr"].(string), "t0ken") {
					t.Errorf("it reads the token: %v", got)
				}
				b.run("echo x >> .git/config; git config user.name x; git commit --allow-empty -m x; git gc; :")
				if after := tree(t, b.dir, ".git"); after != before {
					t.Errorf("the repository has changed:\n%s\n%s", before, after)
				}
				if ran, _ := filepath.Glob(filepath.Join(b.dir, "ran*")); len(ran) > 0 {
					t.Errorf("git ran %s", ran)
				}
			})
		})
	}
}

// TestGitReadsWithin checks that git can read repositories within the working folder, including
// submodules and linked worktrees.
func TestGitReadsWithin(t *testing.T) {
	t.Parallel()
	onTiers(t, func(t *testing.T, b *bench) {
		b.owns(`git init -q one; (cd one; echo one > a; git add .; git commit -qm 'first of one')
			git init -q two; (cd two; git submodule -q add "$PWD/../one" lib; git commit -qm 'first of two'; git worktree add -q ../tree)
			git clone -q --bare one pile
			printf '[http]\n\textraHeader = t0ken\n' >> two/.git/modules/lib/config
			git -C two config extensions.worktreeConfig true; git -C tree config --worktree http.extraHeader t0ken`)

		a := b.options.Launcher.Tier(t.Context()) == sandbox.TierNamespaces
		for command, want := range map[string]string{
			"git -C one log --oneline": "first of one", "cd one && git status --short; git log --oneline": "first of one", "git -C pile log --oneline": "first of one",
			"git -C two log --oneline": "first of two", "git -C two/lib log --oneline": "first of one", "git -C tree log --oneline": "first of two", "git -C two worktree list": "/tree",
		} {
			// Tier B cannot replace files, and these configurations contain secrets.
			hidden := !a && (strings.Contains(command, "two") || strings.Contains(command, "tree"))
			_, got := b.run(command)
			if out := got["stdout"].(string); strings.Contains(out, want) == hidden {
				t.Errorf("%s: %v", command, got)
			}
		}
		_, got := b.run("grep -r t0ken . ; :")
		if strings.Contains(got["stdout"].(string), "t0ken") {
			t.Errorf("it reads the token: %v", got)
		}
	})
}

// TestGitRefusals checks that a refused git command names the setting that allows it, even if the
// program hides the failure.
func TestGitRefusals(t *testing.T) {
	t.Parallel()
	onTiers(t, func(t *testing.T, b *bench) {
		b.owns(`echo one > a; mkdir sub; git init -q .; git add .; git commit -qm first; git branch side; echo two > a`)
		a := b.options.Launcher.Tier(t.Context()) == sandbox.TierNamespaces
		const read, beside = "programs read the git repository ", "can make, rename or remove nothing in the folder "
		for _, c := range []struct{ command, hint string }{
			{"git add a", read}, {"git commit -qam x", read}, {"git commit -am x || true", read}, {"git checkout side", read}, {"git checkout -b x", read}, {"git stash", read},
			{"git branch x", read}, {"git tag x", read}, {"git config user.name x", read}, {"git reset --hard", read}, {"git init", read}, {"git worktree add sub/tree", read},
			{"git fetch .", read}, {"git update-ref refs/heads/y HEAD", read}, {"echo x > .git/hooks/pre-commit", read},
			{"touch new", beside}, {"echo x > new || :", beside}, {"mkdir folder", beside}, {"mv a b", beside}, {"cp a b", beside}, {"rm a", beside},
			{"touch new || :", beside}, {`git add a 2>&1 | tr '\n' ' ' | sed 's/.*/{"content":"## main\\n&","is_error":true}/'`, read},
			{`(echo x > new) 2>&1 | tr '\n' ' ' | sed 's/.*/{"content":"## main\\n&","cwd":"\/x"}/'`, beside}, {"perl -e 'open(F, \">new\") or die \"new: $!\"'", beside},
			{"touch sub/new", ""}, {"git status", ""}, {"git log", ""}, {"cat none", ""}, {"echo 'sub/x: Permission denied'", ""},
		} {
			e, got := b.run(c.command)
			said := strings.Join(e.Warnings, "\n")
			want := c.hint
			if want == beside && a {
				want = "" // the command succeeds
			}
			if want != "" && (!strings.Contains(said, want+b.dir) || !strings.Contains(said, "write in the job: checkout: {repo: "+b.dir+"}")) || want == "" && strings.Contains(said, "checkout:") {
				t.Errorf("%s: %q %v", c.command, said, got)
			}
			if a { // repositories the command made
				b.owns("git reset -q --hard; git clean -qfd")
			}
		}
	})
}

// TestGitClone checks that the result of a command that made a repository explains how it was
// disarmed and the remedy.
func TestGitClone(t *testing.T) {
	t.Parallel()
	onTiers(t, func(t *testing.T, b *bench) {
		b.owns(`git init -q one; cd one; echo one > a; git add .; git commit -qm first; cd ..; mkdir free; mv one free/one; mkdir free/sub`)
		e, _ := b.run("git clone -q free/one/.git free/sub/copy")
		said := strings.Join(e.Warnings, "\n")
		for _, want := range []string{"free/sub/copy/.git is a git repository that this command made", "git init, git clone", "its files are there", "checkout:", "mv -n -- "} {
			if !strings.Contains(said, want) {
				t.Errorf("%q does not have %q", said, want)
			}
		}
		if b.text("free/sub/copy/a") != "one\n" {
			t.Error("the files of the clone are gone")
		}
	})
}
