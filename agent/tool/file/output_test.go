package file_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/tool"
	"rouse/agent/tool/file"
)

// A write is announced before it happens: with the final name, for every spelling of the path, and
// with all data that a watch compares.
func TestOutputsAreAnnouncedFirst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "out"), 0o755), os.Symlink("out", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(real, "out", "a.txt")
	var announced []tool.Output
	var broken error
	roots, err := tool.NewRoots(dir, nil)
	if err != nil {
		t.Fatal(err)
	}

	roots.OnOutput(func(_ context.Context, o tool.Output) error {
		if now, err := os.ReadFile(path); err == nil {
			if sum := sha256.Sum256(now); hex.EncodeToString(sum[:]) == o.Hash {
				t.Error("it was there before it was announced")
			}
		}
		announced = append(announced, o)
		return broken
	})

	b := newBench(t, dir)
	in := b.start(t)
	tools, err := file.Tools(file.Options{Roots: roots, Log: b.ledger.FileOps, Artifacts: b.ledger.Artifacts})
	if err != nil {
		t.Fatal(err)
	}

	r, err := tool.NewRegistry(tools...)
	if err != nil {
		t.Fatal(err)
	}

	call := func(args map[string]any) (tool.Envelope, error) {
		t.Helper()
		raw, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		return r.Call(t.Context(), in, "file_write", raw)
	}

	want := ""
	for i, args := range []map[string]any{
		{"path": "out/a.txt", "content": "one\n"},
		{"path": "link/a.txt", "content": "two\n", "mode": "append"},
		{"path": filepath.Join(dir, "link", "a.txt"), "content": "three\n", "mode": "append"},
	} {
		want += args["content"].(string)
		if e, err := call(args); err != nil || !e.OK {
			t.Fatalf("%+v, %v", e, err)
		}

		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}

		sum := sha256.Sum256([]byte(want))
		if o := announced[i]; len(announced) != i+1 || o.Path != path || o.Hash != hex.EncodeToString(sum[:]) || o.Size != info.Size() || !o.ModTime.Equal(info.ModTime()) {
			t.Errorf("%d: %+v, but it is %s of %d bytes, %s", i, announced, path, info.Size(), info.ModTime())
		}
	}

	if e, err := call(map[string]any{"path": "out/a.txt", "content": "x", "dry_run": true}); err != nil || !e.OK || len(announced) != 3 {
		t.Errorf("a dry run was announced: %+v, %v", announced[3:], err)
	}

	// A file that cannot be announced is not written.
	broken = errors.New("the ledger is full")
	if _, err := call(map[string]any{"path": "out/a.txt", "content": "x"}); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	if now, _ := os.ReadFile(path); string(now) != want {
		t.Errorf("it was written all the same: %q", now)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "out", ".rouse-*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// A message names only a few of the files that a run may read.
func TestManyGrantsInAMessage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var grants []tool.Grant
	for i := range 500 {
		grants = append(grants, tool.Grant{Path: filepath.Join(dir, "in", strings.Repeat("x", i%9+1)), File: true})
	}

	roots, err := tool.NewRoots(dir, grants)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := roots.Open("/elsewhere"); err == nil || !strings.Contains(err.Error(), "and 495 more files") || len(err.Error()) > 2000 {
		t.Errorf("%v", err)
	}
}
