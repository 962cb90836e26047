package install_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"rouse/skills"
	"rouse/skills/install"
)

const csv = "---\nname: csv\ndescription: Cleans CSV.\n---\nRun scripts/clean.sh.\n"

// item is an entry of an archive or a file of a folder.
type item struct {
	name, text string
	kind       byte // tar type; 0 for a file
}

func folder(t testing.TB, items ...item) string {
	t.Helper()
	dir := t.TempDir()
	for _, i := range items {
		path := filepath.Join(dir, filepath.FromSlash(i.name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}

		var err error
		if i.kind == tar.TypeSymlink {
			err = os.Symlink(i.text, path)
		} else {
			err = os.WriteFile(path, []byte(i.text), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	return dir
}

func tarball(t testing.TB, items ...item) string {
	t.Helper()
	var b bytes.Buffer
	g := gzip.NewWriter(&b)
	w := tar.NewWriter(g)
	for _, i := range items {
		h := &tar.Header{Name: i.name, Mode: 0o644, Typeflag: i.kind, Size: int64(len(i.text))}
		if i.kind == 0 {
			h.Typeflag = tar.TypeReg
		} else {
			h.Size, h.Linkname = 0, i.text
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}

		if h.Size > 0 {
			if _, err := w.Write([]byte(i.text)); err != nil {
				t.Fatal(err)
			}
		}
	}

	if err := errors.Join(w.Close(), g.Close()); err != nil {
		t.Fatal(err)
	}

	return file(t, b.Bytes())
}

func zipped(t testing.TB, items ...item) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, i := range items {
		h := &zip.FileHeader{Name: i.name, Method: zip.Deflate}
		h.SetMode(0o644)
		if i.kind == tar.TypeSymlink {
			h.SetMode(fs.ModeSymlink | 0o777)
		}

		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(i.text)); err != nil {
			t.Fatal(err)
		}
	}

	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	return file(t, b.Bytes())
}

func file(t testing.TB, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "archive")
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// below lists the files below a directory, except for rouse's own files.
func below(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			out = append(out, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	return slices.DeleteFunc(out, func(p string) bool { return p == ".staging/lock" || p == "skills.lock.json" })
}

// A folder, a tar and a zip yield the same skill with the same hash. It can be inspected before
// installation, and staging leaves no files.
func TestSources(t *testing.T) {
	items := []item{{"csv/SKILL.md", csv, 0}, {"csv/scripts/clean.sh", "#!/bin/sh\n", 0}, {"README.md", "about", 0}}
	for name, source := range map[string]string{"folder": folder(t, items...), "the skill itself": filepath.Join(folder(t, items...), "csv"), "tar": tarball(t, items...), "zip": zipped(t, items...)} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			staged, err := install.Fetch(t.Context(), root, install.Source{From: source})
			if err != nil {
				t.Fatal(err)
			}
			if staged.Skill.Name != "csv" || len(staged.Files) != 2 || staged.Files[1].Path != "scripts/clean.sh" {
				t.Errorf("%+v", staged)
			}
			if c := skills.Discover(skills.Root{Path: root, Trusted: true}); len(c.Skills()) != 0 {
				t.Error("what is only staged is found already")
			}

			if _, err := install.Install(t.Context(), root, staged, false); err != nil {
				t.Fatal(err)
			}
			if err := staged.Close(); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(below(t, root), " "); got != "csv/SKILL.md csv/scripts/clean.sh" {
				t.Errorf("%s", got)
			}

			c := skills.Discover(skills.Root{Path: root, Trusted: true})
			s, ok := c.Get("csv")
			if !ok || len(c.Problems()) > 0 {
				t.Fatalf("%v, %v", s, c.Problems())
			}

			pinned, err := install.Installed(root)
			if err != nil || len(pinned) != 1 || pinned[0].Source == "" || pinned[0].Hash != staged.Hash {
				t.Fatalf("%+v (%v)", pinned, err)
			}
			if err := install.Verify(s); err != nil {
				t.Error(err)
			}
		})
	}
}

// Entries that are unsafe, not portable or too large are rejected by name, and no files are left.
func TestRefused(t *testing.T) {
	good := item{"csv/SKILL.md", csv, 0}
	var many []item
	for i := range 2001 {
		many = append(many, item{"csv/" + strings.Repeat("x", i%200+1) + "/" + strings.Repeat("y", i/200+1), "", 0})
	}

	deep := strings.Repeat("d/", 13)
	cases := map[string]struct {
		source string
		says   string
	}{
		"traversal":            {tarball(t, good, item{"csv/../../evil", "x", 0}), `".."`},
		"traversal in zip":     {zipped(t, good, item{"../evil", "x", 0}), `".."`},
		"absolute":             {tarball(t, good, item{"/etc/evil", "x", 0}), "absolute"},
		"backslash":            {zipped(t, good, item{`csv\..\..\evil`, "x", 0}), `holds one of`},
		"drive":                {zipped(t, good, item{"C:/evil", "x", 0}), "holds one of"},
		"link":                 {tarball(t, good, item{"csv/passwd", "/etc/passwd", tar.TypeSymlink}), "link"},
		"hard link":            {tarball(t, good, item{"csv/passwd", "/etc/passwd", tar.TypeLink}), "link"},
		"link in zip":          {zipped(t, good, item{"csv/passwd", "/etc/passwd", tar.TypeSymlink}), "link"},
		"link to folder":       {tarball(t, item{"csv", "/tmp", tar.TypeSymlink}, good), "link"},
		"pipe":                 {tarball(t, good, item{"csv/pipe", "", tar.TypeFifo}), "neither a file nor a folder"},
		"device":               {tarball(t, good, item{"csv/null", "", tar.TypeChar}), "neither a file nor a folder"},
		"control character":    {tarball(t, good, item{"csv/a\nb", "x", 0}), "control characters"},
		"no UTF-8":             {tarball(t, good, item{"csv/a\xff", "x", 0}), "UTF-8"},
		"Windows device":       {tarball(t, good, item{"csv/aux.txt", "x", 0}), "device on Windows"},
		"trailing dot":         {tarball(t, good, item{"csv/a.", "x", 0}), "dot or a space"},
		"twice":                {tarball(t, good, item{"csv/skill.MD", "x", 0}), "would be one file"},
		"a file for a folder":  {tarball(t, good, item{"CSV/x", "x", 0}), "would be one"},
		"too deep":             {tarball(t, good, item{"csv/" + deep + "x", "x", 0}), "folders deep"},
		"too many":             {tarball(t, append(many, good)...), "more than 2000 files"},
		"a large file":         {zipped(t, good, item{"csv/big", string(incompressible(11 << 20)), 0}), "more than 10 MiB"},
		"a bomb":               {zipped(t, good, item{"csv/bomb", strings.Repeat("\x00", 9<<20), 0}), "times its size"},
		"a bomb in gzip":       {tarball(t, good, item{"csv/bomb", strings.Repeat("\x00", 9<<20), 0}), "times its size"},
		"too much together":    {folder(t, good, item{"csv/1", string(make([]byte, 9<<20)), 0}, item{"csv/2", string(make([]byte, 9<<20)), 0}, item{"csv/3", string(make([]byte, 9<<20)), 0}, item{"csv/4", string(make([]byte, 9<<20)), 0}, item{"csv/5", string(make([]byte, 9<<20)), 0}, item{"csv/6", string(make([]byte, 9<<20)), 0}), "more than 50 MiB"},
		"cut off":              {file(t, cut(t, tarball(t, good, item{"csv/x", string(incompressible(1 << 20)), 0}))), "not whole"},
		"no archive":           {file(t, []byte("hello, this is a text and no archive")), "neither a zip nor a tar"},
		"empty":                {file(t, nil), "too short"},
		"nowhere":              {filepath.Join(t.TempDir(), "nowhere"), "neither a folder"},
		"no skill":             {folder(t, item{"README.md", "x", 0}), "holds no skill"},
		"a broken skill":       {folder(t, item{"csv/SKILL.md", "# CSV", 0}), "csv/SKILL.md:1: does not start with ---"},
		"a broken skill alone": {folder(t, item{"SKILL.md", "# CSV", 0}), "SKILL.md:1: does not start with ---"},
		"several":              {folder(t, good, item{"pdf/SKILL.md", "---\nname: pdf\ndescription: x\n---\n", 0}), "--path: csv, pdf"},
		"a name for elsewhere": {folder(t, item{"SKILL.md", "---\nname: ../../evil\ndescription: x\n---\n", 0}), "cannot be that of a folder"},
		"a web page":           {"ftp://example.com/x", "neither a file here nor a repository"},
	}

	if runtime.GOOS != "windows" {
		cases["a link in a folder"] = struct{ source, says string }{folder(t, good, item{"csv/passwd", "/etc/passwd", tar.TypeSymlink}), "link"}
	}

	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			above := t.TempDir()
			root := filepath.Join(above, "a", "skills")
			staged, err := install.Fetch(t.Context(), root, install.Source{From: c.source})
			if err == nil {
				_, err = install.Install(t.Context(), root, staged, true)
				if err := staged.Close(); err != nil {
					t.Error(err)
				}
			}
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %s", err, c.says)
			}
			if left := below(t, above); len(left) > 0 && !slices.Equal(left, []string{"a/skills/.staging/lock"}) {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// incompressible returns bytes without repetition.
func incompressible(n int) []byte {
	out := make([]byte, n)
	x := uint64(1)
	for i := range out {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		out[i] = byte(x)
	}

	return out
}

func cut(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text[:len(text)/2]
}

// An installed skill is replaced only on request. Changes are detected and can be pinned, and the
// skill can be removed. Skills that were not installed are left alone.
func TestLifeOfAnInstalledSkill(t *testing.T) {
	ctx, root := t.Context(), t.TempDir()
	put := func(text string, replace bool) error {
		staged, err := install.Fetch(ctx, root, install.Source{From: folder(t, item{"csv/SKILL.md", text, 0})})
		if err != nil {
			t.Fatal(err)
		}
		defer staged.Close()
		_, err = install.Install(ctx, root, staged, replace)
		return err
	}
	if err := put(csv, false); err != nil {
		t.Fatal(err)
	}
	if err := put(csv+"More.\n", false); !errors.Is(err, install.ErrExists) {
		t.Errorf("again: %v", err)
	}
	if err := put(csv+"More.\n", true); err != nil {
		t.Fatal(err)
	}

	at := filepath.Join(root, "csv", "SKILL.md")
	if text, err := os.ReadFile(at); err != nil || !strings.HasSuffix(string(text), "More.\n") {
		t.Errorf("%s (%v)", text, err)
	}

	changed := func() bool {
		t.Helper()
		s, problems := skills.Load(filepath.Join(root, "csv"))
		if s == nil {
			t.Fatal(problems)
		}
		found, err := install.InspectOne(s)
		if err != nil {
			t.Fatal(err)
		}
		return found.State == "changed"
	}
	if changed() {
		t.Error("changed before anybody changed it")
	}
	if err := os.WriteFile(filepath.Join(root, "csv", "new.sh"), []byte("rm"), 0o755); err != nil {
		t.Fatal(err)
	}
	if !changed() {
		t.Error("a new file did not show")
	}

	if _, err := install.Pin(ctx, root, "csv"); err != nil || changed() {
		t.Errorf("pinned as it is: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(root, "own"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := install.Remove(ctx, root, "own"); err == nil || !strings.Contains(err.Error(), "was not installed") {
		t.Errorf("somebody's own: %v", err)
	}

	for _, path := range []string{"../csv", "own/csv", filepath.Join(root, "csv")} { // a name is no path
		if err := install.Remove(ctx, root, path); err == nil || !strings.Contains(err.Error(), "was not installed") {
			t.Errorf("remove %s: %v", path, err)
		}
		if _, err := install.Pin(ctx, root, path); err == nil {
			t.Errorf("%s is pinned", path)
		}
	}

	if err := install.Remove(ctx, root, "csv"); err != nil {
		t.Fatal(err)
	}
	if left := below(t, root); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if pinned, err := install.Installed(root); len(pinned) != 0 || err != nil {
		t.Errorf("%v (%v)", pinned, err)
	}

	if err := os.WriteFile(filepath.Join(root, "skills.lock.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := put(csv, false); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("with a damaged lock file: %v", err)
	}
}

// A repository yields the skill at a path and revision, with its commit. Links are rejected, and
// revisions cannot inject options.
func TestRepository(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not here")
	}

	repo := folder(t, item{"tools/csv/SKILL.md", csv, 0}, item{"tools/pdf/SKILL.md", "---\nname: pdf\ndescription: x\n---\n", 0})
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false"}, args...)...)
		cmd.Dir = repo
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %s", args, out)
		}
		return strings.TrimSpace(string(out))
	}

	git("init", "-q")
	git("add", ".")
	git("commit", "-qm", "one")
	git("tag", "v1")
	first := git("rev-parse", "HEAD")
	if err := os.WriteFile(filepath.Join(repo, "tools/csv/SKILL.md"), []byte(csv+"More.\n"), 0o644); err != nil {
		t.Fatal(err)
	}

	git("commit", "-qam", "two")
	second := git("rev-parse", "HEAD")
	url := "file://" + filepath.ToSlash(repo)
	if runtime.GOOS == "windows" {
		url = "file:///" + filepath.ToSlash(repo)
	}

	for revision, want := range map[string]string{"": second, "v1": first, "main": second, first: first, first[:10]: first} {
		root := t.TempDir()
		staged, err := install.Fetch(t.Context(), root, install.Source{From: url, Path: "tools/csv", Revision: revision})
		if err != nil {
			t.Fatalf("%s: %v", revision, err)
		}
		if staged.Commit != want || staged.Skill.Name != "csv" || staged.Path != "tools/csv" || len(staged.Files) != 1 {
			t.Errorf("%q: %+v, want %s", revision, staged, want)
		}
		if err := staged.Close(); err != nil {
			t.Fatal(err)
		}
	}

	for revision, want := range map[string]string{"": second, "v1": first, "main": second, first: ""} {
		if got, err := install.Latest(t.Context(), url, revision); got != want || err != nil {
			t.Errorf("latest of %q: %s (%v), want %s", revision, got, err, want)
		}
	}

	for _, s := range []install.Source{{From: url}, {From: url, Path: "tools/none"}, {From: url, Path: "../x"}, {From: url, Revision: "v2"}, {From: url, Revision: "--upload-pack=touch x"}, {From: url + "-none"}, {From: "ext::sh -c touch% x"}} {
		root := t.TempDir()
		if staged, err := install.Fetch(t.Context(), root, s); err == nil {
			t.Errorf("%+v: %+v", s, staged)
		}
		if left := below(t, root); len(left) > 0 {
			t.Errorf("%+v left %v", s, left)
		}
	}

	if runtime.GOOS == "windows" {
		return
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(repo, "tools/csv/passwd")); err != nil {
		t.Fatal(err)
	}

	git("add", ".")
	git("commit", "-qm", "three")
	if _, err := install.Fetch(t.Context(), t.TempDir(), install.Source{From: url, Path: "tools/csv"}); err == nil || !strings.Contains(err.Error(), "link") {
		t.Errorf("with a link: %v", err)
	}
}
