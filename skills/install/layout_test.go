package install_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rouse/skills"
	"rouse/skills/install"
)

// layouts are entries that Git or another tool recognizes as a repository.
var layouts = map[string][]item{
	"a folder":               {{name: "csv/.git/config", text: "[core]\n\tfsmonitor = touch canary\n"}, {name: "csv/.git/HEAD", text: "ref: refs/heads/main\n"}},
	"a folder below":         {{name: "csv/scripts/deep/.git/config", text: "x"}},
	"a file":                 {{name: "csv/.git", text: "gitdir: scripts/meta\n"}},
	"capitals":               {{name: "csv/scripts/.GIT/config", text: "x"}},
	"a short name":           {{name: "csv/GIT~1/config", text: "x"}},
	"characters of HFS+":     {{name: "csv/.g\u200cit/config", text: "x"}},
	"bare, HEAD first":       {{name: "csv/meta/HEAD", text: "x"}, {name: "csv/meta/config", text: "x"}, {name: "csv/meta/objects/x", text: "x"}, {name: "csv/meta/refs/x", text: "x"}},
	"bare, HEAD last":        {{name: "csv/meta/refs/x", text: "x"}, {name: "csv/meta/objects/x", text: "x"}, {name: "csv/a.md", text: "x"}, {name: "csv/meta/head", text: "x"}},
	"bare at the top":        {{name: "csv/objects/x", text: "x"}, {name: "csv/HEAD", text: "x"}, {name: "csv/refs/x", text: "x"}},
	"the folder of worktree": {{name: "csv/tree/commondir", text: "../x"}, {name: "csv/tree/HEAD", text: "x"}},
	"Mercurial":              {{name: "csv/.hg/hgrc", text: "[hooks]\n"}},
	"Mercurial, short":       {{name: "csv/HG~1/hgrc", text: "[hooks]\n"}},
	"Fossil":                 {{name: "csv/x/_FOSSIL_", text: "x"}},
	"Subversion":             {{name: "csv/.svn/wc.db", text: "x"}},
}

// Repositories of Git and other tools are rejected in every kind of source, and no file is
// installed.
func TestLayouts(t *testing.T) {
	t.Parallel()
	for name, parts := range layouts {
		items := append([]item{{"csv/SKILL.md", csv, 0}}, parts...)
		backward := slices.Clone(items)
		slices.Reverse(backward)
		for form, source := range map[string]string{"tar": tarball(t, items...), "zip": zipped(t, items...), "backward": tarball(t, backward...), "folder": folder(t, items...)} {
			t.Run(name+" "+form, func(t *testing.T) {
				root := t.TempDir()
				staged, err := install.Fetch(t.Context(), root, install.Source{From: source})
				if err == nil {
					t.Fatalf("installed %+v", errors.Join(staged.Close()))
				}
				warned := slices.ContainsFunc(skills.Validate(filepath.Join(source, "csv")), func(p skills.Problem) bool { return p.Rule == skills.RuleEntry && p.Warning })
				if top := strings.HasPrefix(parts[0].name, "csv/.git"); form == "folder" && warned == top {
					t.Errorf("validate warns: %t", warned)
				}
				if !strings.Contains(err.Error(), "takes ") || !strings.Contains(err.Error(), "for a repository, and runs what its configuration names") {
					t.Error(err)
				}
				if left := below(t, root); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			})
		}
	}
}

// Files in node_modules and of other tools are shown, hashed and checked.
func TestNothingIsLeftOut(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	names := []string{".envrc", ".vscode/tasks.json", ".hidden/x", "node_modules/a/index.js"}
	items := []item{{"csv/SKILL.md", csv, 0}}
	for _, name := range names {
		items = append(items, item{"csv/" + name, "one", 0})
	}
	staged, err := install.Fetch(t.Context(), root, install.Source{From: tarball(t, items...)})
	if err != nil {
		t.Fatal(err)
	}
	defer staged.Close()
	if _, err := install.Install(t.Context(), root, staged, false); err != nil {
		t.Fatal(err)
	}
	s, _ := skills.Load(filepath.Join(root, "csv"))
	detail, err := install.Describe(s, nil)
	if err != nil {
		t.Fatal(err)
	}

	trusted := *s
	if trusted.TrustedHash, err = install.Hash(s.Dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !slices.ContainsFunc(staged.Files, func(f install.File) bool { return f.Path == name }) || !slices.Contains(detail.Files, name) {
			t.Errorf("%s is not shown", name)
		}
		at := filepath.Join(s.Dir, filepath.FromSlash(name))
		if err := errors.Join(install.Verify(s), install.Verify(&trusted), os.WriteFile(at, []byte("two"), 0o600)); err != nil {
			t.Fatal(err)
		}
		if install.Verify(s) == nil || install.Verify(&trusted) == nil {
			t.Errorf("a change of %s does not show", name)
		}
		if err := os.WriteFile(at, []byte("one"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// If a repository is planted in an installed or trusted skill, the skill is not used and the error
// contains a remedy. No program of the repository runs.
func TestPlantedInASkill(t *testing.T) {
	t.Parallel()
	for name, parts := range layouts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			staged, err := install.Fetch(t.Context(), root, install.Source{From: tarball(t, item{"csv/SKILL.md", csv, 0})})
			if err != nil {
				t.Fatal(err)
			}
			defer staged.Close()
			if _, err := install.Install(t.Context(), root, staged, false); err != nil {
				t.Fatal(err)
			}
			s, _ := skills.Load(filepath.Join(root, "csv"))
			trusted := *s
			trusted.TrustedHash = staged.Hash
			if err := errors.Join(install.Verify(s), install.Verify(&trusted)); err != nil {
				t.Fatal(err)
			}

			for _, p := range parts {
				at := filepath.Join(root, filepath.FromSlash(p.name))
				if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(p.text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			if err := install.Verify(s); err == nil || !strings.Contains(err.Error(), "install the skill again with --replace, or rouse skills remove csv") {
				t.Error(err)
			}
			if err := install.Verify(&trusted); err == nil || !strings.Contains(err.Error(), "rouse skills trust "+s.Dir) {
				t.Error(err)
			}
			if found, err := install.InspectOne(s); err != nil || found.State != "changed" || !strings.Contains(found.Why, "rouse skills remove csv") {
				t.Errorf("%+v %v", found, err)
			}
			if _, err := install.Pin(t.Context(), root, "csv"); err == nil {
				t.Error("it was pinned")
			}
		})
	}
}

// A link may lead only to hashed files. Its target is part of the hash.
func TestLinksOfASkill(t *testing.T) {
	t.Parallel()
	dir := folder(t, item{"SKILL.md", csv, 0}, item{"a.md", "a", 0}, item{"b.md", "b", 0})
	relink := func(to string) {
		at := filepath.Join(dir, "link.md")
		_ = os.Remove(at) // missing at first
		if err := os.Symlink(to, at); err != nil {
			t.Skip("needs links")
		}
	}
	relink("a.md")
	first, err := install.Hash(dir)
	if err != nil {
		t.Fatal(err)
	}
	relink("b.md")
	if second, err := install.Hash(dir); err != nil || second == first {
		t.Errorf("the same hash with another target (%v)", err)
	}
	for _, to := range []string{"../x", "none", filepath.Join(dir, "a.md"), "/etc/passwd"} {
		relink(to)
		var refused *install.RefusedError
		if _, err := install.Hash(dir); !errors.As(err, &refused) || refused.Path != "link.md" {
			t.Errorf("to %s: %v", to, err)
		}
	}
}

// A skill can be installed from the repository in which its owner develops it. The repository is
// not part of the skill.
func TestWorkOnASkill(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	dir, root := folder(t, item{"SKILL.md", csv, 0}), t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	staged, err := install.Fetch(t.Context(), root, install.Source{From: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer staged.Close()
	if len(staged.Files) != 1 {
		t.Errorf("%+v", staged.Files)
	}
	if _, err := os.Lstat(filepath.Join(staged.Skill.Dir, ".git")); err == nil {
		t.Error("the repository was copied")
	}
}
