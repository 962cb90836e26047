package backup

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/internal/gitlayout"
)

// planted returns the files of repositories, by directory. Each repository runs a program that
// creates canary if git reads the repository's state.
func planted(canary string) map[string]map[string]string {
	config := "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = \"touch '" + canary + "'; false\"\n"
	bare := func(at string) map[string]string {
		return map[string]string{at + "HEAD": "ref: refs/heads/main\n", at + "config": config + "\tbare = false\n\tworktree = .\n", at + "objects/x": "x", at + "refs/heads/x": "x"}
	}
	out := map[string]map[string]string{
		"folder": bare(".git/"), "below": bare("sub/.git/"), "capitals": bare(".GIT/"), "short": bare("git~1/"), "ignored": bare(".g\u200cit/"),
		"bare": bare(""), "named": bare("pile/"), "nested": bare(".git/modules/x/"), "file": bare("meta/"),
	}
	out["file"][".git"] = "gitdir: meta\n"
	maps.Copy(out["nested"], bare(".git/"))
	return out
}

// status runs git status in a directory and everything below it, as a curious owner would.
func status(t *testing.T, dir string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			cmd := exec.CommandContext(t.Context(), "git", "status")
			cmd.Dir, cmd.Env = path, append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
			_ = cmd.Run() // most directories are not repositories
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// armed lists the repositories below a directory that git would recognize.
func armed(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		var names []string
		entries, err := os.ReadDir(path)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		for name := range gitlayout.Disarm(names) {
			out = append(out, filepath.Join(path, name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A restored home contains no repository that git recognizes, even if a stranger or an older rouse
// made the backup. Names and the order of entries do not matter.
func TestForgedRepositories(t *testing.T) {
	t.Parallel()
	canary := filepath.Join(t.TempDir(), "canary")
	for name, files := range planted(canary) {
		for _, backward := range []bool{false, true} {
			var members []member
			for _, at := range slices.Sorted(maps.Keys(files)) {
				members = append(members, file("home/projects/"+at, files[at]))
			}
			if backward {
				slices.Reverse(members)
			}
			into := t.TempDir()
			m, err := unpack(t.Context(), pack(t, members, nil), into, Hear{})
			if err != nil {
				t.Fatal(name, err)
			}
			found, err := disarm(m, filepath.Join(into, "home"), "/h")
			if err != nil || len(found) == 0 || !strings.HasPrefix(found[0].Path, "/h/projects") || !strings.HasPrefix(found[0].Renamed[0].To, "/h/projects/") {
				t.Errorf("%s: %+v %v", name, found, err)
			}
			if left := armed(t, into); len(left) > 0 {
				t.Errorf("%s: left %v", name, left)
			}
			status(t, filepath.Join(into, "home"))
			if _, err := os.Stat(canary); err == nil {
				t.Fatalf("%s: git ran a program of the backup", name)
			}
		}
	}

	for _, link := range []byte{tar.TypeSymlink, tar.TypeLink} {
		l := member{tar.Header{Name: "home/projects/.git", Linkname: "meta", Typeflag: link}, nil}
		if _, err := unpack(t.Context(), pack(t, []member{l}, nil), t.TempDir(), Hear{}); err == nil || !strings.Contains(err.Error(), "is a link") {
			t.Error(err)
		}
	}
	for _, was := range []string{"../x", ".git/x", "config", ".git:/../../x"} {
		forged := pack(t, []member{file("home/a", "1")}, func(m *Manifest) { m.Entries[0].Was = was })
		if _, err := unpack(t.Context(), forged, t.TempDir(), Hear{}); err == nil || !strings.Contains(err.Error(), "no name of git's") {
			t.Errorf("%s: %v", was, err)
		}
	}
}

// Neither a backup nor a continuous copy of a home contains a repository that git recognizes. A
// restore prints how to bring each one back.
func TestRepositoriesAreCopiedDisarmed(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash") // the command is quoted for bash
	if err != nil {
		t.Skip("needs bash")
	}
	canary := filepath.Join(t.TempDir(), "canary")
	for name, files := range planted(canary) {
		home, into := t.TempDir(), t.TempDir()
		for at, text := range files {
			path := filepath.Join(home, "projects", filepath.FromSlash(at))
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if len(armed(t, home)) == 0 {
			t.Fatalf("%s is no repository", name)
		}

		copied := filepath.Join(into, "copied")
		err := Files(t.Context(), home, nil, func(f File) error {
			if f.Folder {
				return nil
			}
			r, err := f.Open()
			if err != nil {
				return err
			}
			defer r.Close()
			text, err := io.ReadAll(r)
			at := filepath.Join(copied, filepath.FromSlash(f.Path))
			return errors.Join(err, os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, text, 0o600))
		})
		if err != nil {
			t.Fatal(err)
		}

		dest := filepath.Join(into, "backups")
		made, err := Write(t.Context(), Options{Dest: dest, Home: home, Info: Info{Rouse: "test", At: time.Now(), Home: home}})
		if err != nil {
			t.Fatal(err)
		}
		if left := armed(t, into); len(left) > 0 {
			t.Errorf("%s: left %v", name, left)
		}
		status(t, into)
		if _, err := os.Stat(canary); err == nil {
			t.Fatalf("%s: git ran a program of the copy", name)
		}

		// Following the restore's instructions brings the repository back.
		back := t.TempDir()
		m, err := unpack(t.Context(), made.Path, back, Hear{})
		if err != nil {
			t.Fatal(err)
		}
		built := filepath.Join(back, "home")
		found, err := disarm(m, built, built)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range found {
			cmd := exec.CommandContext(t.Context(), bash, "-c", d.Undo())
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %s: %v %s", name, d.Undo(), err, out)
			}
		}
		for at, text := range files {
			if got, err := os.ReadFile(filepath.Join(built, "projects", filepath.FromSlash(at))); err != nil || string(got) != text {
				t.Errorf("%s: %s is not as it was: %v (%+v)", name, at, err, found)
			}
		}
	}
}
