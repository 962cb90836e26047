package file_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/internal/ledger"
	"rouse/internal/ledger/fileop"
	"rouse/internal/nofollow"
)

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

func (b *bench) text(name string) string {
	raw, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil {
		return "none"
	}
	return string(raw)
}

// TestUndo checks the history and the undo of the last change, one of many, and all changes of a
// file (OSA-35).
func TestUndo(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	call := b.run(t)
	change := func(path, content, mode string) string {
		t.Helper()
		e, got := call("file_write", map[string]any{"path": path, "content": content, "mode": mode})
		if !e.OK {
			t.Fatalf("%+v", e)
		}
		return got["operation_id"].(string)
	}

	history := func(args map[string]any) string {
		t.Helper()
		e, got := call("file_operation_history", args)
		if !e.OK {
			t.Fatalf("%+v", e)
		}

		var out []string
		for _, it := range got["operations"].([]any) {
			o := it.(map[string]any)
			out = append(out, fmt.Sprintf("%v %v %v", o["type"], o["path"], o["can_undo"]))
		}
		return strings.Join(out, ", ")
	}

	first := change("sub/deep/a.txt", "one\n", "")
	change("sub/deep/a.txt", "two\n", "append")
	change("b.txt", "b\n", "")
	if e, _ := call("file_edit", map[string]any{"path": "sub/deep/a.txt", "old_string": "one", "new_string": "1"}); !e.OK {
		t.Fatalf("%+v", e)
	}
	if got := history(nil); got != "fileEdit sub/deep/a.txt true, create b.txt true, write sub/deep/a.txt false, create sub/deep/a.txt false" {
		t.Errorf("%s", got)
	}
	if got := history(map[string]any{"path": "b.txt", "limit": 1}); got != "create b.txt true" {
		t.Errorf("%s", got)
	}

	if e, _ := call("file_undo", map[string]any{"operation_id": first}); e.Kind != tool.KindRejected || !strings.Contains(e.Message, "changed since") || b.text("sub/deep/a.txt") != "1\ntwo\n" {
		t.Errorf("an old change of a file that was changed since: %+v", e)
	}
	if e, got := call("file_undo", nil); !e.OK || got["count"] != 1.0 || b.text("sub/deep/a.txt") != "one\ntwo\n" {
		t.Errorf("the last: %+v %v", e, got)
	}
	if e, _ := call("file_undo", map[string]any{"operation_id": first, "path": "b.txt"}); e.Kind != tool.KindInvalidArgs || e.Field != "path" {
		t.Errorf("two that disagree: %+v", e)
	}

	if e, got := call("file_undo", map[string]any{"path": "sub/deep/a.txt"}); !e.OK || got["count"] != 2.0 || b.text("sub") != "none" || b.text("b.txt") != "b\n" {
		t.Errorf("all of a file: %+v %v", e, got)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "sub")); err == nil {
		t.Error("the folders that were made for the file are left")
	}

	for say, args := range map[string]map[string]any{`there is no change "99"`: {"operation_id": "99"}, `there is no change "x/k1"`: {"operation_id": "x/k1"}, `there is no change "7/k1"`: {"operation_id": "7/k1"}, "no change to sub/deep/a.txt": {"path": "sub/deep/a.txt"}} {
		if e, _ := call("file_undo", args); e.Kind != tool.KindNotFound || !strings.Contains(e.Message, say) {
			t.Errorf("%s: %+v", say, e)
		}
	}

	if e, _ := call("file_undo", map[string]any{"operation_id": first}); e.Kind != tool.KindRejected || !strings.Contains(e.Message, "the change 1/"+first+" of sub/deep/a.txt cannot be undone: it was undone at") {
		t.Errorf("one change twice: %+v", e)
	}

	// Another run of the agent undoes the change only by the run number and the key.
	call = b.run(t)
	if e, _ := call("file_undo", nil); e.Kind != tool.KindNotFound || !strings.Contains(e.Message, "this run") {
		t.Errorf("another run's change: %+v", e)
	}
	if got := history(nil); !strings.HasPrefix(got, "fileEdit sub/deep/a.txt false, create b.txt true") {
		t.Errorf("%s", got)
	}
	if e, _ := call("file_undo", map[string]any{"operation_id": "1/k3"}); !e.OK || b.text("b.txt") != "none" {
		t.Errorf("%+v", e)
	}

	// The history has at most 100 entries.
	for range 101 {
		op := fileop.Op{Agent: "clerk", Type: fileop.Create, Root: b.dir, Path: filepath.Join(b.dir, "gone"), AfterHash: "x"}
		if _, err := b.ledger.FileOps.Add(t.Context(), ledger.Attempt{Run: b.last, Number: 1}, op, nil); err != nil {
			t.Fatal(err)
		}
	}
	for limit, want := range map[int]float64{0: 20, 5: 5, 1000: 100} {
		if _, got := call("file_operation_history", map[string]any{"limit": limit}); got["count"] != want {
			t.Errorf("limit %d: %v changes, want %v", limit, got["count"], want)
		}
	}
}

// whyNot returns the reason why each change of an agent cannot be undone, newest first.
func whyNot(t *testing.T, call caller) (out []string) {
	t.Helper()
	e, got := call("file_operation_history", nil)
	if !e.OK {
		t.Fatalf("%+v", e)
	}

	for _, it := range got["operations"].([]any) {
		why, _ := it.(map[string]any)["why_not"].(string)
		out = append(out, why)
	}
	return out
}

// TestUndoRun reverts the changes of a run from outside, newest first. Files that were changed
// since are reverted only with force.
func TestUndoRun(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	ctx := t.Context()
	path := filepath.Join(b.dir, "a.txt")
	if err := os.WriteFile(path, []byte("old\n"), 0o640); err != nil {
		t.Fatal(err)
	}

	call := b.run(t)
	for _, text := range []string{"one\n", "two\n"} {
		if e, _ := call("write_file", map[string]any{"path": "a.txt", "content": text}); !e.OK {
			t.Fatalf("%+v", e)
		}
	}

	ops, err := b.ledger.FileOps.List(ctx, fileop.Filter{Run: b.last, Limit: -1})
	if err != nil || len(ops) != 2 {
		t.Fatalf("%+v %v", ops, err)
	}
	if why := whyNot(t, call); len(why) != 2 || why[0] != "" || why[1] == "" {
		t.Errorf("%q", why)
	}
	if err := os.WriteFile(path, []byte("mine\n"), 0o640); err != nil {
		t.Fatal(err)
	}

	var bad *tool.Refusal
	if err := file.Undo(ctx, b.ledger.FileOps, nil, nofollow.UntrustedDirs{}, ops[0], false); !errors.As(err, &bad) || !strings.Contains(err.Error(), "changed since") || b.text("a.txt") != "mine\n" {
		t.Errorf("%v", err)
	}
	if err := file.Undo(ctx, b.ledger.FileOps, nil, nofollow.UntrustedDirs{}, ops[0], true); err != nil || b.text("a.txt") != "one\n" {
		t.Errorf("%v", err)
	}
	if err := file.Undo(ctx, b.ledger.FileOps, nil, nofollow.UntrustedDirs{}, ops[1], false); err != nil || b.text("a.txt") != "old\n" {
		t.Errorf("%v", err)
	}

	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o640 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if op, err := b.ledger.FileOps.List(ctx, fileop.Filter{ID: ops[1].ID}); err != nil || file.Undo(ctx, b.ledger.FileOps, nil, nofollow.UntrustedDirs{}, op[0], true) == nil {
		t.Error("undone twice")
	}
}

// An agent may have replaced the folder of a run with a link. Undo does not write through the link.
func TestUndoFollowsNoLink(t *testing.T) {
	t.Parallel()
	outer, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	work, out := filepath.Join(outer, "work"), t.TempDir()
	kept := filepath.Join(out, "a.txt")
	if err := errors.Join(os.Mkdir(work, 0o700), os.WriteFile(kept, []byte("new\n"), 0o600)); err != nil {
		t.Fatal(err)
	}

	b := newBench(t, work)
	if e, _ := b.run(t)("write_file", map[string]any{"path": "a.txt", "content": "new\n"}); !e.OK {
		t.Fatalf("%+v", e)
	}
	if err := errors.Join(os.Rename(work, work+"-old"), os.Symlink(out, work)); err != nil {
		t.Skip("links cannot be made here")
	}

	for _, force := range []bool{false, true} {
		_, done, err := file.UndoRun(t.Context(), b.ledger.FileOps, nil, nofollow.NewBoundary(outer), b.last, force, false)
		if text, bad := os.ReadFile(kept); bad != nil || string(text) != "new\n" || done {
			t.Errorf("force %t: %q %v %t %v", force, text, bad, done, err)
		}
	}
}

// After a crash between the record and the change, the history reports that the change was not
// made. Undo leaves the file unchanged.
func TestUndoOfNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	in := b.start(t)
	if err := os.WriteFile(filepath.Join(b.dir, "a.txt"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}

	real, err := filepath.EvalSymlinks(b.dir)
	if err != nil {
		t.Fatal(err)
	}

	const written = "x"
	for _, op := range []fileop.Op{
		{Type: fileop.Create, Root: real, Path: filepath.Join(real, "new.txt"), AfterHash: written},
		{Type: fileop.Write, Root: real, Path: filepath.Join(real, "a.txt"), BeforeHash: sum("old"), AfterHash: written, Size: 3, Mode: 0o600},
	} {
		op.Agent = "clerk"
		op, err := b.ledger.FileOps.Add(t.Context(), ledger.Attempt{Run: in.Run, Number: in.Attempt}, op, []byte("old"))
		if err != nil {
			t.Fatal(err)
		}
		if why := whyNot(t, b.run(t)); len(why) == 0 || !strings.Contains(why[0], "did not come about") {
			t.Errorf("%s: %q", op.Path, why)
		}
		if err := file.Undo(t.Context(), b.ledger.FileOps, nil, nofollow.UntrustedDirs{}, op, false); err != nil {
			t.Errorf("%v", err)
		}
	}

	if b.text("a.txt") != "old" || b.text("new.txt") != "none" {
		t.Errorf("%q %q", b.text("a.txt"), b.text("new.txt"))
	}
}

// Writing the same content leaves the file and its time unchanged, but is recorded. Undo leaves the
// file unchanged, too. Earlier changes of the run can still be undone.
func TestWriteOfTheSameBytes(t *testing.T) {
	t.Parallel()
	b := newBench(t, writeFiles(t, map[string]string{"a.txt": "one\n"}))
	call := b.run(t)
	path := filepath.Join(b.dir, "a.txt")
	stat := func() os.FileInfo {
		t.Helper()
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}

	before := stat()
	e, res := call("file_write", map[string]any{"path": "a.txt", "content": "one\n"})
	if !e.OK || res["unchanged"] != true || res["operation_id"] == nil {
		t.Errorf("%+v", e)
	}
	if e, res := call("file_write", map[string]any{"path": "a.txt", "content": "", "mode": "append"}); !e.OK || res["unchanged"] != true {
		t.Errorf("%+v", e)
	}
	if now := stat(); !os.SameFile(before, now) || !now.ModTime().Equal(before.ModTime()) {
		t.Errorf("it is another file, or has another time: %v", now)
	}

	for _, content := range []string{"two\n", "two\n"} {
		if e, _ := call("file_write", map[string]any{"path": "a.txt", "content": content}); !e.OK {
			t.Errorf("%+v", e)
		}
	}
	ops, err := b.ledger.FileOps.List(t.Context(), fileop.Filter{Limit: -1})
	if err != nil || len(ops) != 4 {
		t.Fatalf("%+v, %v", ops, err)
	}
	for i, op := range ops { // newest first
		if err := file.Undo(t.Context(), b.ledger.FileOps, nil, nofollow.UntrustedDirs{}, op, false); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	if got := b.text("a.txt"); got != "one\n" {
		t.Errorf("%q", got)
	}
}

// A change beyond the undo limit is reported before and after it, and cannot be undone.
func TestUndoBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	if err := os.WriteFile(filepath.Join(b.dir, "a.txt"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}

	call := b.run(t)
	if _, err := b.ledger.FileOps.Add(t.Context(), ledger.Attempt{Run: b.last, Number: 1}, fileop.Op{Agent: "clerk", Type: fileop.Write, Root: b.dir, Path: filepath.Join(b.dir, "b"), BeforeHash: "x", AfterHash: "y", Size: 256 << 20}, nil); err != nil {
		t.Fatal(err)
	}

	for _, dry := range []bool{true, false} {
		e, got := call("file_write", map[string]any{"path": "a.txt", "content": "new", "dry_run": dry})
		if !e.OK || got["can_undo"] != false || got["risk_level"] != "high" || len(e.Warnings) != 1 || !strings.Contains(e.Warnings[0], "cannot be undone") {
			t.Errorf("%+v %v", e, got)
		}
	}

	if e, _ := call("file_undo", nil); e.Kind != tool.KindRejected || !strings.Contains(e.Message, "256 MiB") || b.text("a.txt") != "new" {
		t.Errorf("%+v", e)
	}
}

// TestUndoAllOfARun checks that all changes of a run are undone, or none if a file was changed
// since. A second undo finds no changes.
func TestUndoAllOfARun(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	if err := os.WriteFile(filepath.Join(b.dir, "b.txt"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}

	call := b.run(t)
	for _, c := range [][2]string{{"sub/a.txt", "one"}, {"sub/a.txt", "two"}, {"b.txt", "new"}} {
		if e, _ := call("file_write", map[string]any{"path": c[0], "content": c[1]}); !e.OK {
			t.Fatalf("%+v", e)
		}
	}

	state := func() string { return b.text("sub/a.txt") + " " + b.text("b.txt") }
	undo := func(force, dry bool) string {
		t.Helper()
		out, done, err := file.UndoRun(t.Context(), b.ledger.FileOps, nil, nofollow.UntrustedDirs{}, b.last, force, dry)
		if err != nil {
			t.Fatal(err)
		}

		why := fmt.Sprint(len(out), " ", done)
		for _, u := range out {
			if u.Why != "" {
				why += " " + filepath.Base(u.Path) + ": " + u.Why
			}
		}

		return why
	}
	if got := undo(false, true); got != "3 false" || state() != "two new" {
		t.Errorf("a dry run: %s, %s", got, state())
	}
	if err := os.WriteFile(filepath.Join(b.dir, "b.txt"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := undo(false, false); got != "3 false b.txt: the file was changed since" || state() != "two mine" {
		t.Errorf("with one in the way: %s, %s", got, state())
	}

	if got := undo(true, false); got != "3 true" || state() != "none old" {
		t.Errorf("by force: %s, %s", got, state())
	}
	if got := undo(false, false); got != "0 true" {
		t.Errorf("again: %s", got)
	}
}
