package tool_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rouse/agent/tool"
	"rouse/internal/contract"
)

const secret = "SECRET"

// yard is a tree with a workdir, a readable folder, one file of a drop folder, and a secret outside
// of the grants. Its links try to lead out.
type yard struct {
	base  string
	roots *tool.Roots
}

func newYard(t testing.TB) *yard {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	y := &yard{base: base}
	for _, dir := range []string{"work/sub", "extra", "extra2", "drop"} {
		if err := os.MkdirAll(y.at(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	for _, file := range []string{"secret", "work/a", "work/sub/b", "extra/c", "extra2/d", "drop/e.csv", "drop/f.csv"} {
		text := "open"
		if strings.HasPrefix(file, "secret") || strings.HasPrefix(file, "extra2") || file == "drop/f.csv" {
			text = secret
		}
		if err := os.WriteFile(y.at(file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	for link, target := range map[string]string{"work/out": "../secret", "work/abs": y.at("secret"), "work/up": "..", "work/near": "a", "extra/up": base} {
		if err := os.Symlink(target, y.at(link)); err != nil {
			t.Skip("symbolic links cannot be made here")
		}
	}

	y.roots = y.grant(t, y.at("work"))
	return y
}

func (y *yard) at(name string) string { return filepath.Join(y.base, filepath.FromSlash(name)) }

func (y *yard) grant(t testing.TB, workdir string) *tool.Roots {
	t.Helper()
	r, err := tool.NewRoots(workdir, []tool.Grant{{Path: y.at("extra")}, {Path: y.at("drop/e.csv"), File: true}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// read returns the content of the file at a path.
func read(r *tool.Roots, path string) (string, error) {
	f, err := r.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()

	if info, err := f.Stat(); err != nil || info.IsDir() {
		return "", err
	}

	text, err := io.ReadAll(f)
	return string(text), err
}

// TestRoots checks that no path leads out of the grants, and that a refusal names the path (OSA-30,
// YOA-09).
func TestRoots(t *testing.T) {
	row, sandbox := contract.Of(t, "OSA-30"), contract.Of(t, "YOA-09")
	y := newYard(t)
	up := row.Quote("..")
	for _, path := range []string{"a", "near", "./sub/../a", "sub/b", y.at("work/a"), y.at("extra/c"), y.at("drop/e.csv"), y.base + "/extra/../drop/e.csv"} {
		if text, err := read(y.roots, path); text != "open" || err != nil {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}

	for _, path := range []string{up + "/secret", sandbox.Quote("../secret"), sandbox.Quote("up/secret"), "sub/../../secret", y.at("secret"), "out", "abs", "up/secret", "up", y.at("extra2/d"), y.at("extra/up/secret"),
		y.at("drop/f.csv"), y.at("drop/e.csv/../f.csv"), y.at("drop"), "", "a\x00b", "/etc/passwd", "missing", "a/b"} {
		text, err := read(y.roots, path)
		var bad *tool.Refusal
		if err == nil || !errors.As(err, &bad) {
			t.Errorf("%q gave %q, %v, which is no *Refusal", path, text, err)
			continue
		}

		if string(bad.Kind) == row.Quote("invalid_args") && path != "" && !strings.Contains(path, "\x00") && !strings.Contains(bad.Message, y.at("work")+", ") && !strings.Contains(bad.Message, ", "+y.at("work")) {
			t.Errorf("%q: the refusal names no root: %s", path, bad.Message)
		}
	}

	if _, err := y.roots.Resolve(y.at("extra/new"), true); err == nil {
		t.Error("a grant for reading allows writing")
	}
}

// TestRootsBehindALink checks that a folder granted through a link is also found by its configured
// path.
func TestRootsBehindALink(t *testing.T) {
	y := newYard(t)
	if err := os.Symlink(y.at("work"), y.at("home")); err != nil {
		t.Fatal(err)
	}

	r := y.grant(t, y.at("home"))
	for _, path := range []string{"a", y.at("home/a"), y.at("work/a"), y.at("home/sub/../a")} {
		if text, err := read(r, path); text != "open" || err != nil {
			t.Errorf("%s: %q, %v", path, text, err)
		}
		if got := r.Canonical(path); got != y.at("work/a") {
			t.Errorf("%s is canonically %s", path, got)
		}
	}

	if _, err := read(r, y.at("home/../secret")); err == nil {
		t.Error("the link's parent was reached")
	}
}

// TestSwappedTriggerFile checks that a grant of a trigger file does not follow a link that replaces
// the file.
func TestSwappedTriggerFile(t *testing.T) {
	y := newYard(t)
	for when, grant := range map[string]func() *tool.Roots{
		"before the grant": func() *tool.Roots { y.swap(t); return y.grant(t, y.at("work")) },
		"after the grant":  func() *tool.Roots { r := y.grant(t, y.at("work")); y.swap(t); return r },
	} {
		r := grant()
		for _, path := range []string{y.at("drop/e.csv"), y.at("drop/f.csv"), y.at("secret")} {
			if text, err := read(r, path); err == nil {
				t.Errorf("%s: %s gave %q", when, path, text)
			}
		}
	}
}

func (y *yard) swap(t testing.TB) {
	t.Helper()
	if err := os.Remove(y.at("drop/e.csv")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("f.csv", y.at("drop/e.csv")); err != nil {
		t.Fatal(err)
	}
}

// TestHardLinks checks that a file with several hard links is never written, and is read only in
// the workdir, because its other name may be anywhere.
func TestHardLinks(t *testing.T) {
	y := newYard(t)
	for _, name := range []string{"extra/innocent", "work/innocent"} {
		if err := os.Link(y.at("secret"), y.at(name)); err != nil {
			t.Skip("hard links cannot be made here")
		}
	}

	if _, err := read(y.roots, y.at("extra/innocent")); err == nil || !strings.Contains(err.Error(), "hard link") {
		t.Errorf("a hard link was opened: %v", err)
	}

	p, err := y.roots.Resolve("innocent", true)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()

	if f, err := p.OpenChecked(); err == nil {
		f.Close()
		t.Error("a hard link was opened for writing")
	}
}

// segments lists the parts of the path traversal strings.
var segments = []string{"..", ".", "", "a", "sub", "b", "out", "abs", "up", "near", "secret", "work", "extra", "extra2", "drop", "e.csv", "f.csv", "d",
	"...", "..;", "%2e%2e", "..%2f", "..%c0%af", "\\..", "..\\", "~", "\u2025", "．．", "file:", "C:", "//", "NUL", "a\x00", " ..", ".. ", "\xff"}

// TestTraversal checks that no path string reads the secret or creates a file outside of the
// workdir (OSA-30).
func TestTraversal(t *testing.T) {
	y := newYard(t)
	before := y.outside(t)
	starts := []string{"", "/", "./", "../", y.base, y.at("work"), y.at("extra"), y.at("drop"), y.at("drop/e.csv")}
	random := rand.New(rand.NewPCG(1, 2)) // fixed seed; a failure message contains the string
	for range 21_000 {
		path := starts[random.IntN(len(starts))]
		for range random.IntN(8) {
			path += "/" + segments[random.IntN(len(segments))]
		}
		y.probe(t, path)
	}

	if after := y.outside(t); after != before {
		t.Errorf("outside of the workdir there was %s, now there is %s", before, after)
	}
}

func FuzzTraversal(f *testing.F) {
	y := newYard(f)
	before := y.outside(f)
	for _, s := range []string{"../secret", "up/secret", "a/../../secret", "./up/./../secret", y.at("extra/up/secret")} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, path string) {
		y.probe(t, path)
		if after := y.outside(t); after != before {
			t.Errorf("%q: outside of the workdir there was %s, now there is %s", path, before, after)
		}
	})
}

// probe reads a path, and creates it as a folder if the run may write there.
func (y *yard) probe(t interface{ Errorf(string, ...any) }, path string) {
	if text, err := read(y.roots, path); text == secret {
		t.Errorf("%q led to the secret (%v)", path, err)
	}

	p, err := y.roots.Resolve(path, true)
	if err != nil {
		return
	}
	defer p.Close()

	if err := p.Mkdir(p.Rel, 0o700); err == nil {
		if err := p.Remove(p.Rel); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// outside returns the paths in the tree that are outside of the workdir.
func (y *yard) outside(t testing.TB) string {
	t.Helper()
	var names []string
	for _, pattern := range []string{"*", "extra/*", "extra2/*", "drop/*"} {
		found, err := filepath.Glob(y.at(pattern))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, found...)
	}

	return strings.Join(names, " ")
}

// TestSwapRace checks that reading does not leave the roots if a folder is replaced with a link at
// the same time (OSA-30).
func TestSwapRace(t *testing.T) {
	y := newYard(t)
	if err := os.WriteFile(y.at("work/sub/secret"), []byte("open"), 0o600); err != nil {
		t.Fatal(err)
	}

	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}

			_ = os.Rename(y.at("work/sub"), y.at("work/kept"))
			_ = os.Symlink("..", y.at("work/sub"))
			_ = os.Remove(y.at("work/sub"))
			_ = os.Rename(y.at("work/kept"), y.at("work/sub"))
		}
	})

	// On a busy machine, the folder may be a link at each attempt, and the test takes longer.
	good, refused := 0, map[string]int{}
	begun := time.Now()
	for time.Since(begun) < 500*time.Millisecond || good == 0 && time.Since(begun) < 30*time.Second {
		text, err := read(y.roots, "sub/secret")
		switch {
		case text == secret:
			t.Error("the race was lost")
		case err == nil:
			good++
		default:
			refused[fmt.Sprintf("%.40s", err)]++
		}
	}

	close(stop)
	swapping.Wait()
	if good == 0 {
		t.Errorf("nothing was ever read: %v", refused)
	}
}
