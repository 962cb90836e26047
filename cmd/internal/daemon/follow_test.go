package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"rouse/cmd/internal/cmdtest"
	"rouse/skills"
)

// However a file is saved, the saved content is applied, and no intermediate state.
func TestReloadHoweverItIsSaved(t *testing.T) {
	t.Parallel() // it mostly waits
	s := serveHere(t, map[string]string{"rouse.yaml": ReloadHead + Note("start")})
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	do := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}

	ways := []struct {
		name string
		save func(text string)
	}{
		{"in place", func(text string) { write(s.config, text) }},
		{"a rename over it", func(text string) {
			write(s.config+".tmp", text)
			do(os.Rename(s.config+".tmp", s.config))
		}},
		{"as vim does", func(text string) {
			do(os.Rename(s.config, s.config+"~"))
			write(s.config, text)
			do(os.Chmod(s.config, 0o600), os.Remove(s.config+"~"))
		}},
		{"delete and create", func(text string) {
			do(os.Remove(s.config))
			write(s.config, text)
		}},
		{"in pieces", func(text string) {
			f, err := os.Create(s.config)
			do(err)
			for part := range slices.Chunk([]byte(text), 40) {
				_, err := f.Write(part)
				do(err, f.Sync())
			}
			do(f.Close())
		}},
		{"with its old time and size", func(text string) {
			info, err := os.Stat(s.config)
			do(err)
			if int64(len(text)) != info.Size() {
				t.Errorf("%d bytes took the place of %d", len(text), info.Size())
			}
			write(s.config+".tmp", text)
			do(os.Chtimes(s.config+".tmp", info.ModTime(), info.ModTime()), os.Rename(s.config+".tmp", s.config))
		}},
		{"its folder replaced", func(text string) {
			fresh := s.dir + ".fresh"
			do(os.Mkdir(fresh, 0o755))
			write(filepath.Join(fresh, "rouse.yaml"), text)
			// The daemon keeps its open home.
			do(os.Rename(s.dir, s.dir+".old"), os.Rename(fresh, s.dir), os.Rename(filepath.Join(s.dir+".old", "home"), filepath.Join(s.dir, "home")))
			t.Cleanup(func() { os.RemoveAll(s.dir + ".old") })
		}},
		{"after its folder was replaced", func(text string) { write(s.config, text) }},
	}
	for i, w := range ways {
		if runtime.GOOS == "windows" && strings.Contains(w.name, "folder") {
			continue // Windows cannot rename a folder in use
		}

		job := "saved" + string(rune('a'+i))
		w.save(ReloadHead + Note(job))
		s.has(job)
		if got := s.Current().JobNames(); !slices.Equal(got, []string{job}) {
			t.Errorf("%s: %s", w.name, got)
		}
	}

	if st := s.Status(); len(st.ConfigProblems) > 0 {
		t.Errorf("%+v", st.ConfigProblems)
	}
	if strings.Contains(s.log.String(), `"level":"ERROR"`) {
		t.Errorf("what was there for a moment was taken for the configuration: %s", s.log)
	}

	// An incomplete file is a problem until the rest is written.
	text := ReloadHead + Note("whole")
	write(s.config, text[:len(text)-30])
	cmdtest.Until(t, "the problem with half a file", func() bool { return len(s.Status().ConfigProblems) > 0 })
	write(s.config, text)
	s.has("whole")
}

// Links are followed to their targets: a replaced link (such as ..data of Kubernetes), a link in
// the middle of the path, and a changed file behind a link.
func TestReloadThroughLinks(t *testing.T) {
	t.Parallel() // it mostly waits
	dir := cmdtest.Write(t, map[string]string{
		"conf/..1/rouse.yaml": ReloadHead + Note("one"), "conf/..2/rouse.yaml": ReloadHead + Note("two"), "conf/..3/rouse.yaml": ReloadHead + Note("three"),
	})
	link := func(to, name string) {
		t.Helper()
		tmp := filepath.Join(dir, name+".tmp")
		if err := errors.Join(os.Symlink(to, tmp), os.Rename(tmp, filepath.Join(dir, name))); err != nil {
			t.Skip(err)
		}
	}

	link("..1", "conf/..data")
	link("..data/rouse.yaml", "conf/rouse.yaml")
	link("conf", "etc")
	s := ServeIn(t, dir, "etc/rouse.yaml")
	link("..2", "conf/..data")
	s.has("two")
	if err := os.RemoveAll(filepath.Join(dir, "conf/..1")); err != nil {
		t.Fatal(err)
	}

	link("..3", "conf/..data")
	s.has("three")
	s.put("conf/..3/rouse.yaml", ReloadHead+Note("four"))
	s.has("four")
	s.put("other/rouse.yaml", ReloadHead+Note("five"))
	link("other", "etc")
	s.has("five")
	s.put("other/rouse.yaml", ReloadHead+Note("six"))
	s.has("six")
}

// Included files are followed like the main file, also files in new folders and missing files. So
// are files with prompts and instructions.
func TestReloadIncludes(t *testing.T) {
	t.Parallel() // it mostly waits
	head := strings.Replace(ReloadHead, "version: 1\n", "version: 1\ninclude: [\"conf.d/*.yaml\", \"deep/**/*.yml\", one.yaml]\n", 1)
	head = strings.Replace(head, "workdir: ./work", "workdir: ./work, instructions_file: clerk.md", 1)
	job := func(name string) string { return "jobs:\n" + Note(name) }
	s := serveHere(t, map[string]string{"rouse.yaml": head + Note("main"), "one.yaml": job("one"), "clerk.md": "Work."})
	jobs := func(want ...string) {
		t.Helper()
		cmdtest.Until(t, strings.Join(want, ", "), func() bool { return slices.Equal(s.Current().JobNames(), want) })
	}
	remove := func(name string) {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(s.dir, name)); err != nil {
			t.Fatal(err)
		}
	}

	jobs("main", "one")
	s.put("conf.d/a.yaml", job("a")) // its folder is new too
	jobs("main", "a", "one")
	s.put("conf.d/b.yaml", job("b"))
	jobs("main", "a", "b", "one")
	s.put("conf.d/b.yaml", job("b2"))
	jobs("main", "a", "b2", "one")
	s.put("deep/down/here/c.yml", job("c"))
	jobs("main", "a", "b2", "c", "one")
	s.put("deep/down/here/d.yml", job("d"))
	jobs("main", "a", "b2", "c", "d", "one")
	remove("deep/down")
	jobs("main", "a", "b2", "one")
	remove("conf.d/a.yaml")
	jobs("main", "b2", "one")
	remove("one.yaml")
	cmdtest.Until(t, "the problem", func() bool { return len(s.Status().ConfigProblems) > 0 })
	if p := s.Status().ConfigProblems[0]; p.Line != 2 || !strings.Contains(p.Message, "there is no file") {
		t.Errorf("%+v", p)
	}

	jobs("main", "b2", "one")
	s.put("one.yaml", job("one"))
	cmdtest.Until(t, "the end of the problem", func() bool { return len(s.Status().ConfigProblems) == 0 })
	s.put("clerk.md", "Work harder.")
	cmdtest.Until(t, "the instructions", func() bool { return s.Current().Config.Agents[0].Instructions == "Work harder." })
}

// The modules of a skill folder are followed, with their manifests and the tags of an index.
func TestReloadPrograms(t *testing.T) {
	t.Parallel() // it mostly waits
	s := serveHere(t, map[string]string{"rouse.yaml": strings.Replace(ReloadHead, "version: 1\n", "version: 1\nskills: {roots: [{path: ./team}]}\n", 1) + Note("main"), "team/README.md": "Skills."})
	folder, err := skills.Scaffold{Name: "sums", Mode: skills.ModeFlow, Author: "a"}.Write(filepath.Join(s.dir, "team"))
	if err != nil {
		t.Fatal(err)
	}
	is := func(what string, holds func(*skills.Skill) bool) {
		t.Helper()
		cmdtest.Until(t, what, func() bool {
			one, ok := s.Current().Config.FoundSkills().Catalog().Get("sums")
			return ok && holds(one)
		})
	}

	is("the program", func(one *skills.Skill) bool { return one.Manifest.Version == "0.1.0" })
	text, err := os.ReadFile(filepath.Join(folder, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	s.put("team/sums/manifest.json", strings.Replace(string(text), "0.1.0", "0.2.0", 1))
	is("the new version", func(one *skills.Skill) bool { return one.Manifest.Version == "0.2.0" })
	s.put("team/index.json", `[{"name": "sums", "description": "x", "version": "0.2.0", "author": "a", "folderPath": "sums", "tags": ["money"]}]`)
	is("its tags", func(one *skills.Skill) bool { return slices.Equal(one.Tags, []string{"money"}) })
}
