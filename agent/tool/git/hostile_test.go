package git_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"rouse/agent/tool/git"
)

// hooks lists the hooks that any git command here could call.
var hooks = []string{"pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-index-change", "reference-transaction", "post-checkout", "fsmonitor-watchman"}

// attack is a repository that names a program for git to run. The program creates a canary in the
// test's folder. In the sandbox, where that folder is read-only, it also kills the git that started
// it, so that the attack does not go unnoticed.
type attack struct {
	config     string // with RUN as a placeholder for the program
	attributes string
	hooks      string // folder for hooks, relative to the top folder
	files      map[string]string
	within     string // configuration of a submodule
	fires      bool   // the attack succeeds with the owner's git
}

var attacks = map[string]attack{
	"a monitor of files":            {config: "[core]\nfsmonitor = RUN", fires: true},
	"hooks":                         {hooks: ".git/hooks", fires: true},
	"a folder of hooks":             {config: "[core]\nhooksPath = elsewhere", hooks: "elsewhere", fires: true},
	"a clean filter":                {config: "[filter \"evil\"]\nclean = RUN\nsmudge = RUN\nrequired = true", attributes: "* filter=evil", fires: true},
	"a filter process":              {config: "[filter \"evil\"]\nprocess = RUN", attributes: "* filter=evil", fires: true},
	"a text conversion":             {config: "[diff \"evil\"]\ntextconv = RUN", attributes: "* diff=evil", fires: true},
	"a driver of differences":       {config: "[diff \"evil\"]\ncommand = RUN", attributes: "* diff=evil", fires: true},
	"an external diff":              {config: "[diff]\nexternal = RUN", fires: true},
	"a program for signatures":      {config: "[commit]\ngpgsign = true\n[gpg]\nprogram = canaries/run", fires: true},
	"a file that is included":       {config: "[include]\npath = ../more", files: map[string]string{"more": "[core]\nfsmonitor = RUN"}, fires: true},
	"a file included for a folder":  {config: "[includeIf \"gitdir:**\"]\npath = ../more", files: map[string]string{"more": "[core]\nfsmonitor = RUN"}, fires: true},
	"a configuration of a worktree": {config: "[extensions]\nworktreeConfig = true", files: map[string]string{".git/config.worktree": "[core]\nfsmonitor = RUN"}, fires: true},
	"a pager":                       {config: "[core]\npager = RUN\n[pager]\nstatus = RUN\ndiff = RUN"},
	"an editor":                     {config: "[core]\neditor = RUN\n[sequence]\neditor = RUN"},
	"an alias":                      {config: "[alias]\nstatus = !RUN\ndiff = !RUN\nadd = !RUN"},
	"a way to the network":          {config: "[core]\nsshCommand = RUN\ngitProxy = RUN\n[credential]\nhelper = !RUN\n[remote \"origin\"]\nurl = ssh://localhost/none\npromisor = true\nuploadpack = RUN"},
	"refs of alternates":            {config: "[core]\nalternateRefsCommand = RUN"},
	"a repository within":           {within: "[core]\nfsmonitor = RUN", fires: true},
}

// TestAttacks checks that each attack succeeds with the owner's git.
func TestAttacks(t *testing.T) {
	inOrder(t)
	for name, a := range attacks {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.committed()
			b.laid("", a)
			if said := b.ownersGit(); a.fires != b.touched() {
				t.Errorf("it is: %v, not %v\n%s", b.touched(), a.fires, said)
			}
		})
	}
}

// TestHostileRepository: OSA-38, OSA-39, programs named by a repository do not run, neither for the
// tools nor for a prompt, and the tools still work.
func TestHostileRepository(t *testing.T) {
	inOrder(t)
	groups := map[string][]attack{"filters": nil, "all others": nil}
	for _, a := range attacks {
		group := "all others"
		if strings.Contains(a.attributes, "filter") {
			group = "filters"
		}
		groups[group] = append(groups[group], a)
	}

	for group, together := range groups {
		t.Run(group, func(t *testing.T) {
			b := newBench(t)
			b.committed()
			b.laid("kill -9 $PPID; ", together...)
			b.write("a", "two\n")

			for _, c := range []struct {
				name string
				args map[string]any
			}{{"git_status", nil}, {"git_diff", nil}, {"git_diff", map[string]any{"commit": "HEAD"}}, {"git_commit", map[string]any{"message": "One file", "files": []string{"a"}}}, {"git_commit", map[string]any{"message": "All of it"}}} {
				b.key = c.name + string(rune('a'+len(c.args)))
				if c.name == "git_commit" {
					b.need(c.args)
				}

				filtered := group == "filters" && c.name == "git_commit"
				if e, _ := b.call(c.name, c.args); !e.OK && (!filtered || !strings.Contains(e.Message, "filter evil")) {
					t.Errorf("%s %v: %+v", c.name, c.args, e)
				}
			}
			b.write("a", "three\n")
			if said := git.Summary(t.Context(), b.host, "clerk", func(s string) string { return s }, 2000); !strings.Contains(said, `modified "a" (not staged)`) {
				t.Errorf("a prompt is told %q", said)
			}
			if b.touched() {
				t.Error("a program that the repository names was run")
			}
		})
	}
}

var (
	committedOnce sync.Once
	committedCopy fs.FS // of a working folder, created by the first test that needs it
)

// committed makes the working folder a repository with two files and another repository in it.
func (b *bench) committed() {
	b.t.Helper()
	committedOnce.Do(func() {
		b.write("a", "one\n")
		b.write("b", "one\n")
		b.write("inner/x", "one\n")
		b.git("-C", "inner", "init", "-q", "-b", "main", "--template=")
		b.write("inner/.git/config", ownersConfig)
		b.git("-C", "inner", "add", ".")
		b.git("-C", "inner", "commit", "-qm", "inner")
		b.git("add", ".")
		b.git("commit", "-qm", "first")
		committedCopy = inMemory(b.t, b.dir)
	})

	if err := errors.Join(os.RemoveAll(b.dir), os.CopyFS(b.dir, committedCopy), os.MkdirAll(b.canaries, 0o755)); err != nil {
		b.t.Fatal(err)
	}
}

// inMemory returns a copy of a folder in memory.
func inMemory(t *testing.T, dir string) fs.FS {
	t.Helper()
	out := fstest.MapFS{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}

		f := &fstest.MapFile{Mode: fs.ModeDir | 0o755}
		if !d.IsDir() {
			f.Mode = 0o644
			f.Data, err = os.ReadFile(filepath.Join(dir, path))
		}
		out[path] = f
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	return out
}

// laid puts attacks into the repository. then is the last command of their program.
func (b *bench) laid(then string, together ...attack) {
	b.t.Helper()
	run := "touch '" + filepath.Join(b.canaries, "canary") + "' 2>/dev/null; " + then + ":"
	fill := func(text string) string { return strings.ReplaceAll(text, "RUN", `"`+run+`"`) }
	config, attributes, scripts := "[core]\nrepositoryformatversion = 0\n[user]\nname = Owner\nemail = owner@example.com\n", "", []string{"canaries/run"}
	for _, a := range together {
		config += fill(strings.ReplaceAll(a.config, "!RUN", `"!`+run+`"`)) + "\n"
		for name, text := range a.files {
			b.write(name, fill(text))
		}

		if a.attributes != "" {
			attributes += a.attributes + "\n"
		}

		if a.within != "" {
			b.write("inner/.git/config", "[core]\nrepositoryformatversion = 0\n"+fill(a.within)+"\n")
		}

		for _, h := range hooks {
			if a.hooks != "" {
				scripts = append(scripts, filepath.Join(a.hooks, h))
			}
		}
	}

	b.write(".git/config", config)
	b.write(".gitattributes", attributes)

	for _, name := range scripts {
		b.write(name, "#!/bin/sh\n"+run+"\n")
		if err := os.Chmod(filepath.Join(b.dir, name), 0o755); err != nil {
			b.t.Fatal(err)
		}
	}

	b.write(".git/info/exclude", "canaries\nmore\nelsewhere\n")
}

// ownersGit runs the commands of the tools with the owner's git, as far as they succeed.
func (b *bench) ownersGit() (said string) {
	b.t.Helper()
	b.write("a", "changed by its owner\n")
	b.write("b", "changed as well\n")
	b.write("inner/x", "changed\n")

	for _, args := range [][]string{{"status"}, {"--no-pager", "diff"}, {"add", "a"}, {"commit", "-m", "by its owner"}} {
		cmd := exec.CommandContext(b.t.Context(), "git", args...)
		cmd.Dir, cmd.Env = b.dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.t.TempDir(), "GIT_CONFIG_NOSYSTEM=1"}
		out, _ := cmd.CombinedOutput() // an attack may make it fail
		said += string(out)
	}
	return said
}

func (b *bench) touched() bool {
	_, err := os.Stat(filepath.Join(b.canaries, "canary"))
	return err == nil
}

// TestLedElsewhere checks that the tools do not follow references to a configuration outside the
// repository. Each reference is an attack with the owner's git.
func TestLedElsewhere(t *testing.T) {
	inOrder(t)
	const program = "[core]\nrepositoryformatversion = 0\nfsmonitor = RUN\n"
	for name, c := range map[string]struct {
		files   map[string]string
		move    string // new location of .git
		refused bool
	}{
		"a common folder":      {files: map[string]string{".git/commondir": "../meta\n", "meta/config": program, "meta/objects/x": "", "meta/refs/x": ""}},
		"a file":               {files: map[string]string{".git": "gitdir: meta\n", "meta/config": program}, move: "meta", refused: true},
		"a bare repository":    {files: map[string]string{"config": program + "bare = false\nworktree = .\n", "HEAD": "ref: refs/heads/main\n", "objects/x": "", "refs/x": ""}, move: "gone", refused: true},
		"one beside the index": {files: map[string]string{"inner/.git/config": program}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.committed()
			if c.move != "" {
				if err := os.Rename(filepath.Join(b.dir, ".git"), filepath.Join(b.dir, c.move)); err != nil {
					t.Fatal(err)
				}
			}
			run := "touch '" + filepath.Join(b.canaries, "canary") + "' 2>/dev/null;:"
			for path, text := range c.files {
				b.write(path, strings.ReplaceAll(text, "RUN", `"`+run+`"`))
			}

			for _, tool := range []string{"git_status", "git_diff"} {
				if e, _ := b.call(tool, nil); e.OK == c.refused {
					t.Errorf("%s: %+v", tool, e)
				}
			}
			if b.touched() {
				t.Fatal("a program that the agent names was run")
			}
			if said := b.ownersGit(); !b.touched() {
				t.Errorf("it is none under the owner's own git\n%s", said)
			}
		})
	}
}
