package atomicfile_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"rouse/internal/atomicfile"
)

const half = 1 << 16 // more than a file system writes at once

// child is the path that a child process of the test writes until it is killed. Optional.
const child = "ROUSE_TEST_ATOMICFILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(child); path != "" {
		for i := 0; ; i++ {
			if err := atomicfile.Write(path, content(i), 0o600); err != nil {
				os.Exit(1)
			}
		}
	}
	os.Exit(m.Run())
}

// content is one repeated letter, so that partial and mixed contents are detected.
func content(i int) []byte { return bytes.Repeat([]byte{byte('a' + i%2)}, 2*half) }

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// names lists a folder, with "unfinished" for each unfinished file.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}

	var out []string
	for _, e := range entries {
		name := e.Name()
		if atomicfile.Unfinished(name) {
			name = "unfinished"
		}
		out = append(out, name)
	}

	return strings.Join(out, " ")
}

// TestCommitAndAbort: after an interruption at any point, the file has its complete old or new
// content. Other files remain only if the process died.
func TestCommitAndAbort(t *testing.T) {
	t.Parallel()
	broken := errors.New("the source broke off")
	begin := func(t *testing.T, path string) *atomicfile.File {
		f, err := atomicfile.Create(path, 0o600)
		if err == nil {
			_, err = f.Write([]byte("ne"))
		}
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for name, c := range map[string]struct {
		do   func(t *testing.T, path string) error
		err  error
		want string
		left string
	}{
		"written":                 {func(t *testing.T, path string) error { return atomicfile.Write(path, []byte("new"), 0o600) }, nil, "new", "file"},
		"dead in between":         {func(t *testing.T, path string) error { begin(t, path); return nil }, nil, "old", "unfinished file"},
		"dead before it is named": {func(t *testing.T, path string) error { return begin(t, path).Close() }, nil, "old", "unfinished file"},
		"thrown away":             {func(t *testing.T, path string) error { return begin(t, path).Abort() }, nil, "old", "file"},
		"thrown away late": {func(t *testing.T, path string) error {
			f := begin(t, path)
			return errors.Join(f.Close(), f.Abort(), f.Abort())
		}, nil, "old", "file"},
		"kept": {func(t *testing.T, path string) error {
			f := begin(t, path)
			return errors.Join(f.Close(), f.Commit(), f.Abort())
		}, nil, "ne", "file"},
		"the name is taken": {func(t *testing.T, path string) error { return begin(t, path).CommitNew() }, fs.ErrExist, "old", "file"},
		"a new one": {func(t *testing.T, path string) error {
			return atomicfile.StreamNew(path, 0o600, func(io.Writer) error { t.Error("it is written in vain"); return nil })
		}, fs.ErrExist, "old", "file"},
		"a new one, and the name is taken meanwhile": {func(t *testing.T, path string) error {
			return errors.Join(os.Remove(path), atomicfile.StreamNew(path, 0o600, func(io.Writer) error { return os.WriteFile(path, []byte("other"), 0o600) }))
		}, fs.ErrExist, "other", "file"},
		"a broken source": {func(t *testing.T, path string) error {
			return atomicfile.Stream(path, 0o600, func(w io.Writer) error {
				_, err := w.Write([]byte("ne"))
				return errors.Join(err, broken)
			})
		}, broken, "old", "file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := c.do(t, path); !errors.Is(err, c.err) {
				t.Fatalf("%v, want %v", err, c.err)
			}
			if got, left := read(t, path), names(t, filepath.Dir(path)); got != c.want || left != c.left {
				t.Errorf("%q beside %s, want %q and %s", got, left, c.want, c.left)
			}

			if err := atomicfile.Write(path, []byte("later"), 0o600); err != nil || read(t, path) != "later" {
				t.Errorf("and afterwards: %v", err)
			}
		})
	}
}

// TestKilled: a process that keeps writing a file is killed. Readers always see a complete file.
func TestKilled(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	if err := atomicfile.Write(path, content(0), 0o600); err != nil {
		t.Fatal(err)
	}

	writer := exec.CommandContext(t.Context(), os.Args[0])
	writer.Env = append(os.Environ(), child+"="+path)
	if err := writer.Start(); err != nil {
		t.Fatal(err)
	}

	whole := func() {
		t.Helper()
		got := []byte(read(t, path))
		if len(got) != 2*half || bytes.Count(got, got[:1]) != len(got) {
			t.Fatalf("%d bytes, from %c to %c", len(got), got[0], got[len(got)-1])
		}
	}

	seen := map[byte]bool{}
	for len(seen) < 2 { // until it has written
		whole()
		seen[read(t, path)[0]] = true
	}

	for range 200 {
		whole()
	}

	if err := writer.Process.Kill(); err != nil {
		t.Fatal(err)
	}

	_ = writer.Wait() // always fails after the kill
	whole()
}

func TestMode(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such modes")
	}

	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}

	mode := func() fs.FileMode {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	if err := atomicfile.Write(path, nil, 0o600); err != nil || mode() != 0o600 {
		t.Errorf("a secret has the mode %o: %v", mode(), err)
	}

	f, err := atomicfile.Create(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Chmod(0o666), f.Commit()); err != nil || mode() != 0o666 {
		t.Errorf("one that was given has the mode %o: %v", mode(), err)
	}
}

// TestWriteUnsynced: an unsynced file is complete, too, and leaves no other file.
func TestWriteUnsynced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "holder.json")
	for _, text := range []string{"first", "second"} {
		if err := atomicfile.WriteUnsynced(path, []byte(text), 0o600); err != nil || read(t, path) != text {
			t.Errorf("%q: %q, %v", text, read(t, path), err)
		}
	}
	if got := names(t, dir); got != "holder.json" {
		t.Errorf("the folder holds %s", got)
	}

	if err := atomicfile.WriteUnsynced(filepath.Join(dir, "none", "a"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("into a folder that is not there: %v", err)
	}
}

// TestErrors: errors name the file.
func TestErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "taken", "by"), 0o755); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{filepath.Join("none", "file"), "taken"} {
		err := atomicfile.Write(filepath.Join(dir, name), nil, 0o600)
		if err == nil || !strings.HasPrefix(err.Error(), "cannot write "+filepath.Join(dir, name)+": ") || strings.Contains(err.Error(), ".rouse-") {
			t.Errorf("%s: %v", name, err)
		}
	}

	if left := names(t, dir); left != "taken" {
		t.Errorf("there is %s", left)
	}
}

// TestCreateIn: an unfinished file in a root can be read, and links do not lead out of the root.
func TestCreateIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "root", "sub"), 0o755); err != nil {
		t.Fatal(err)
	}

	root, err := os.OpenRoot(filepath.Join(dir, "root"))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()

	f, err := atomicfile.CreateIn(root, filepath.Join("sub", "file"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("text"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}

	if text, err := root.ReadFile(f.TempName()); string(text) != "text" {
		t.Errorf("%q, %v", text, err)
	}
	if err := f.CommitNew(); err != nil || read(t, filepath.Join(dir, "root", "sub", "file")) != "text" || names(t, filepath.Join(dir, "root", "sub")) != "file" {
		t.Errorf("%v", err)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "root", "out")); err != nil {
		t.Skip("no links can be made here")
	}

	if _, err := atomicfile.CreateIn(root, filepath.Join("out", "file"), 0o600); err == nil || names(t, dir) != "root" {
		t.Errorf("a link led out: %v", err)
	}
}

func TestRename(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	at := func(name string) string { return filepath.Join(dir, name) }
	if err := atomicfile.RenameNew(at("a"), at("b")); !errors.Is(err, fs.ErrExist) || read(t, at("b")) != "b" || read(t, at("a")) != "a" {
		t.Errorf("%v", err)
	}
	if err := atomicfile.RenameNew(at("a"), at("c")); err != nil || names(t, dir) != "b c" || read(t, at("c")) != "a" {
		t.Errorf("%v, %s", err, names(t, dir))
	}
	if err := os.Mkdir(at("sub"), 0o700); err != nil {
		t.Fatal(err)
	}

	if err := atomicfile.Rename(at("c"), filepath.Join(at("sub"), "c")); err != nil || names(t, dir) != "b sub" || names(t, at("sub")) != "c" {
		t.Errorf("%v, %s", err, names(t, dir))
	}
	if err := atomicfile.Rename(filepath.Join(at("sub"), "c"), at("b")); err != nil || read(t, at("b")) != "a" {
		t.Errorf("%v", err)
	}
	if err := atomicfile.RenameNew(at("b"), filepath.Join(at("sub"), "b")); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

// reserveAndRename never replaces an existing file or folder.
func TestReserveAndRename(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, make := range []func() error{
		func() error { return os.WriteFile(filepath.Join(dir, "one"), []byte("1"), 0o600) },
		func() error { return os.WriteFile(filepath.Join(dir, "two"), []byte("2"), 0o600) },
		func() error { return os.Mkdir(filepath.Join(dir, "folder"), 0o700) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()

	for _, move := range []func(from, to atomicfile.Name) error{atomicfile.ReserveAndRename, atomicfile.MoveNew} {
		for _, from := range []string{"one", "folder"} {
			if err := move(atomicfile.Name{Root: root, Name: from}, atomicfile.Name{Root: root, Name: "two"}); !errors.Is(err, fs.ErrExist) {
				t.Errorf("%s: %v", from, err)
			}
			if err := errors.Join(move(atomicfile.Name{Root: root, Name: from}, atomicfile.Name{Root: root, Name: "free"}), root.Rename("free", from)); err != nil {
				t.Errorf("%s: %v", from, err)
			}
		}
	}
	if now, err := os.ReadFile(filepath.Join(dir, "two")); err != nil || string(now) != "2" {
		t.Errorf("%q %v", now, err)
	}
}
