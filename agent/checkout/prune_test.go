package checkout_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/agent/checkout"
)

func TestPrune(t *testing.T) {
	t.Parallel()
	repo, s := owner(t), store(t)
	for _, run := range []string{"1", "2", "3"} {
		keep := map[string]time.Duration{"1": time.Hour, "2": time.Hour}[run]
		c, err := s.Make(t.Context(), run, checkout.Spec{Repo: repo, Branch: "rouse/" + run, Keep: keep})
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(c.Dir, "new.txt"), run)
		commit(t, c.Dir, "work")
		collected(t, s, c)
	}
	mirror := made(t, s, repo, "4").Mirror
	for _, left := range []string{"runs/.making-9/work", "runs/.gone-8", "scratch/view-1", "mirrors/.making-x.git"} {
		write(t, filepath.Join(s.Dir, left, "file"), "left")
		os.Chmod(filepath.Join(s.Dir, left), 0) // an agent may leave such a folder
	}

	later := time.Now().Add(2 * time.Hour)
	removed, err := s.Prune(func(c checkout.Clone) bool { return c.Run != "2" }, later)
	if err != nil || !slices.Equal(removed, []string{"1"}) {
		t.Fatal(removed, err)
	}
	if git(t, repo, "rev-parse", "rouse/1") == "" {
		t.Error("the branch is gone")
	}
	all, err := s.List()
	if err != nil || len(all) != 3 || all[0].Run != "2" || all[0].Result.Commits[0].Subject != "work" {
		t.Error(all, err)
	}
	for _, dir := range []string{"runs", "mirrors", "scratch"} {
		entries, _ := os.ReadDir(filepath.Join(s.Dir, dir))
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") || dir == "scratch" {
				t.Error("left", dir, e.Name())
			}
		}
	}
	u, err := s.Usage()
	if err != nil || u.Mirrors == 0 || len(u.Runs) != 3 || u.Clones() == 0 {
		t.Errorf("%+v, %v", u, err)
	}

	for _, c := range all {
		if err := s.Discard(t.Context(), c.Run); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Prune(nil, time.Now()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(mirror); err != nil {
		t.Error("a mirror that was just used is gone")
	}
	if _, err := s.Prune(nil, time.Now().AddDate(0, 1, 0)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(mirror); !os.IsNotExist(err) {
		t.Error("a mirror without clones stays", err)
	}
}

func TestMakeRefuses(t *testing.T) {
	t.Parallel()
	repo, s := owner(t), store(t)
	git(t, repo, "branch", "taken")
	git(t, repo, "branch", "deep/er")
	folder := t.TempDir()
	for name, c := range map[string]struct {
		spec checkout.Spec
		want string
	}{
		"a relative path":      {checkout.Spec{Repo: "app", Branch: "b"}, "is not an absolute path of this machine; clone the repository here first"},
		"an address":           {checkout.Spec{Repo: "https://example.com/app.git", Branch: "b"}, "is not an absolute path of this machine; clone the repository here first"},
		"no repository":        {checkout.Spec{Repo: folder, Branch: "b"}, "is not the top folder of a git repository"},
		"nothing there":        {checkout.Spec{Repo: filepath.Join(folder, "none"), Branch: "b"}, "no such file"},
		"a branch that exists": {checkout.Spec{Repo: repo, Branch: "taken"}, "the branch taken is already in"},
		"a branch below one":   {checkout.Spec{Repo: repo, Branch: "taken/b"}, "the branch taken is already in"},
		"a branch above one":   {checkout.Spec{Repo: repo, Branch: "deep"}, "which has the branch deep/er"},
		"dots":                 {checkout.Spec{Repo: repo, Branch: "../../x"}, "is not a name for a branch"},
		"an option":            {checkout.Spec{Repo: repo, Branch: "-f"}, "is not a name for a branch"},
		"HEAD":                 {checkout.Spec{Repo: repo, Branch: "HEAD"}, "is not a name for a branch"},
		"a full name":          {checkout.Spec{Repo: repo, Branch: "refs/heads/x"}, "is not a name for a branch"},
		"a lock":               {checkout.Spec{Repo: repo, Branch: "x.lock"}, "is not a name for a branch"},
		"lines":                {checkout.Spec{Repo: repo, Branch: "x\ny"}, "is not a name for a branch"},
		"no ref":               {checkout.Spec{Repo: repo, Branch: "b", Ref: "none"}, "there is no branch, no tag and no commit none"},
		"an option as ref":     {checkout.Spec{Repo: repo, Branch: "b", Ref: "--all"}, "is not the name of a branch, a tag or a commit"},
		"an expression as ref": {checkout.Spec{Repo: repo, Branch: "b", Ref: "main@{1}"}, "is not the name of a branch, a tag or a commit"},
		"a path as ref":        {checkout.Spec{Repo: repo, Branch: "b", Ref: "../main"}, "is not the name of a branch, a tag or a commit"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.Make(t.Context(), "1", c.spec)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Error(err)
			}
		})
	}
	if _, err := s.Make(t.Context(), "../1", checkout.Spec{Repo: repo, Branch: "b"}); err == nil || !strings.Contains(err.Error(), "is not a run") {
		t.Error(err)
	}

	s.MaxBytes = 1
	made(t, s, repo, "1")
	if _, err := s.Make(t.Context(), "2", checkout.Spec{Repo: repo, Branch: "b"}); err == nil || !strings.Contains(err.Error(), "apply or discard runs") {
		t.Error(err)
	}
}

// TestOwners checks that programs in the configuration of each kind of repository do not run.
func TestOwners(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, repo string) string{
		"bare": func(t *testing.T, repo string) string {
			to := filepath.Join(t.TempDir(), "bare.git")
			git(t, ".", "clone", "-q", "--bare", repo, to)
			git(t, to, "config", "user.name", "Olga Owner")
			git(t, to, "config", "user.email", "olga@example.com")
			return to
		},
		"a linked worktree": func(t *testing.T, repo string) string {
			git(t, repo, "checkout", "-q", "--detach")
			to := filepath.Join(t.TempDir(), "linked")
			git(t, repo, "worktree", "add", "-q", to, "main")
			return to
		},
		"packed": func(t *testing.T, repo string) string {
			git(t, repo, "gc", "-q")
			git(t, repo, "pack-refs", "--all")
			return repo
		},
		"shallow": func(t *testing.T, repo string) string {
			write(t, filepath.Join(repo, "c.txt"), "c\n")
			commit(t, repo, "second")
			to := filepath.Join(t.TempDir(), "shallow")
			git(t, ".", "clone", "-q", "--depth=1", "file://"+repo, to)
			git(t, to, "config", "user.name", "Olga Owner")
			git(t, to, "config", "user.email", "olga@example.com")
			return to
		},
		"with programs": func(t *testing.T, repo string) string {
			for _, key := range []string{"core.fsmonitor", "core.sshCommand", "uploadpack.packObjectsHook", "filter.x.smudge", "filter.x.process", "diff.external", "core.alternateRefsCommand"} {
				git(t, repo, "config", key, "touch "+filepath.Join(repo, "../canary")+";:")
			}
			return repo
		},
		"SHA-256": func(t *testing.T, _ string) string {
			to := filepath.Join(t.TempDir(), "sha256")
			git(t, ".", "init", "-q", "-b", "main", "--object-format=sha256", to)
			git(t, to, "config", "user.name", "Olga Owner")
			git(t, to, "config", "user.email", "olga@example.com")
			write(t, filepath.Join(to, "a.txt"), "one\ntwo\nthree\n")
			write(t, filepath.Join(to, "b.txt"), "b\n")
			commit(t, to, "first")
			return to
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := owner(t)
			repo, s := prepare(t, first), store(t)
			os.Remove(filepath.Join(first, "../canary"))
			res := worked(t, s, repo, "1")
			if _, err := s.Apply(t.Context(), res, checkout.Merge); err != nil {
				t.Fatal(err)
			}
			if git(t, repo, "rev-parse", "main") != res.Head {
				t.Error("it was not applied")
			}
			git(t, repo, "pack-refs", "--all")
			if err := s.Discard(t.Context(), "1"); err != nil {
				t.Error(err)
			}
			if git(t, repo, "branch", "--list", "rouse/*") != "" || git(t, repo, "rev-parse", "main") != res.Head {
				t.Error("the branch is left, or main is not")
			}
			if _, err := os.Lstat(filepath.Join(first, "../canary")); err == nil {
				t.Error("a program of the configuration was run")
			}
		})
	}
}

func TestLeftOut(t *testing.T) {
	t.Parallel()
	repo, s := owner(t), store(t)
	write(t, filepath.Join(repo, ".gitmodules"), "[submodule \"lib\"]\n\tpath = lib\n\turl = ../lib\n")
	write(t, filepath.Join(repo, ".gitattributes"), "*.bin filter=lfs diff=lfs merge=lfs -text\n")
	commit(t, repo, "modules and LFS")
	c := made(t, s, repo, "1")
	if got := strings.Join(c.Notes, "; "); !strings.Contains(got, "submodules are not fetched") || !strings.Contains(got, "Git LFS") {
		t.Error(got)
	}
}
