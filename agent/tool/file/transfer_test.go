package file_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/internal/ledger/fileop"
	"rouse/internal/nofollow"
)

// tree lists the files below the bench's folder with their contents, and empty folders with a slash.
func (b *bench) tree(t *testing.T) string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(b.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(b.dir, path)
		if d.Type()&os.ModeSymlink != 0 {
			out = append(out, rel+"@")
			return nil
		}
		if !d.IsDir() {
			raw, err := os.ReadFile(path)
			out = append(out, rel+"="+string(raw))
			return err
		}
		if all, err := os.ReadDir(path); err == nil && len(all) == 0 {
			out = append(out, rel+"/")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, " ")
}

// Moves, copies, deletions and new folders can be undone call by call and as a whole run (OSA-35).
func TestTransfers(t *testing.T) {
	t.Parallel()
	content := map[string]string{"a.pdf": "%PDF\x00\xff", "b.txt": "b", "in/x.txt": "x", "in/deep/y.bin": "y\x00", "full/z.txt": "z"}
	const all = "a.pdf=%PDF\x00\xff b.txt=b full/z.txt=z in/deep/y.bin=y\x00 in/x.txt=x"
	for name, c := range map[string]struct {
		tool  string
		args  map[string]any
		after string
	}{
		"move":          {"file_move", map[string]any{"from": "a.pdf", "to": "new/sub/c.pdf"}, "b.txt=b full/z.txt=z in/deep/y.bin=y\x00 in/x.txt=x new/sub/c.pdf=%PDF\x00\xff"},
		"move into":     {"file_move", map[string]any{"from": "a.pdf", "to": "full"}, "b.txt=b full/a.pdf=%PDF\x00\xff full/z.txt=z in/deep/y.bin=y\x00 in/x.txt=x"},
		"move into new": {"file_move", map[string]any{"from": "a.pdf", "to": "new/"}, "b.txt=b full/z.txt=z in/deep/y.bin=y\x00 in/x.txt=x new/a.pdf=%PDF\x00\xff"},
		"move over":     {"file_move", map[string]any{"from": "a.pdf", "to": "b.txt", "overwrite": true}, "b.txt=%PDF\x00\xff full/z.txt=z in/deep/y.bin=y\x00 in/x.txt=x"},
		"move a folder": {"file_move", map[string]any{"from": "in", "to": "full"}, "a.pdf=%PDF\x00\xff b.txt=b full/in/deep/y.bin=y\x00 full/in/x.txt=x full/z.txt=z"},
		"copy":          {"file_copy", map[string]any{"from": "a.pdf", "to": "new/c.pdf"}, all + " new/c.pdf=%PDF\x00\xff"},
		"copy over":     {"file_copy", map[string]any{"from": "a.pdf", "to": "b.txt", "overwrite": true}, strings.Replace(all, "b.txt=b", "b.txt=%PDF\x00\xff", 1)},
		"copy a folder": {"file_copy", map[string]any{"from": "in", "to": "out"}, all + " out/deep/y.bin=y\x00 out/x.txt=x"},
		"delete":        {"file_delete", map[string]any{"path": "a.pdf"}, "b.txt=b full/z.txt=z in/deep/y.bin=y\x00 in/x.txt=x"},
		"delete all":    {"file_delete", map[string]any{"path": "in", "recursive": true}, "a.pdf=%PDF\x00\xff b.txt=b full/z.txt=z"},
		"make":          {"dir_create", map[string]any{"path": "new/sub"}, all + " new/sub/"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, writeFiles(t, content))
			call := b.run(t)
			c.args["dry_run"] = true
			if e, got := call(c.tool, c.args); !e.OK || got["dry_run"] != true || b.tree(t) != all {
				t.Fatalf("a dry run: %+v %v %q", e, got, b.tree(t))
			}
			delete(c.args, "dry_run")
			for round := range 2 {
				if e, got := call(c.tool, c.args); !e.OK || got["can_undo"] != true || b.tree(t) != c.after {
					t.Fatalf("%+v %v\n%q, want\n%q", e, got, b.tree(t), c.after)
				}
				if round == 0 { // first call by call, then the whole run
					if e, _ := call("file_undo", nil); !e.OK || b.tree(t) != all {
						t.Fatalf("undo: %+v %q", e, b.tree(t))
					}
					continue
				}
				ops, done, err := file.UndoRun(t.Context(), b.ledger.FileOps, nil, nofollow.UntrustedDirs{}, b.last, false, false)
				if err != nil || !done || b.tree(t) != all {
					t.Fatalf("undo of the run: %+v %v %v %q", ops, done, err, b.tree(t))
				}
			}
		})
	}
}

// A run that writes, moves and edits is undone as a whole, unless another process has changed a file.
func TestTransferChains(t *testing.T) {
	t.Parallel()
	b := newBench(t, writeFiles(t, map[string]string{"in/a.txt": "a"}))
	call := b.run(t)
	for _, step := range []struct {
		tool string
		args map[string]any
	}{
		{"file_write", map[string]any{"path": "in/b.txt", "content": "b"}},
		{"file_move", map[string]any{"from": "in", "to": "out/in"}},
		{"file_edit", map[string]any{"path": "out/in/b.txt", "old_string": "b", "new_string": "c"}},
		{"file_move", map[string]any{"from": "out/in/b.txt", "to": "c.txt"}},
		{"file_delete", map[string]any{"path": "out", "recursive": true}},
	} {
		if e, _ := call(step.tool, step.args); !e.OK {
			t.Fatalf("%s: %+v", step.tool, e)
		}
	}
	if got := b.tree(t); got != "c.txt=c" {
		t.Fatalf("%q", got)
	}

	write(t, filepath.Join(b.dir, "c.txt"), "mine")
	ops, done, err := file.UndoRun(t.Context(), b.ledger.FileOps, nil, nofollow.UntrustedDirs{}, b.last, false, false)
	if err != nil || done || b.tree(t) != "c.txt=mine" || !strings.Contains(fmt.Sprint(ops), "changed since") {
		t.Fatalf("%v %v %v %q", ops, done, err, b.tree(t))
	}
	write(t, filepath.Join(b.dir, "c.txt"), "c")
	if _, done, err = file.UndoRun(t.Context(), b.ledger.FileOps, nil, nofollow.UntrustedDirs{}, b.last, false, false); err != nil || !done || b.tree(t) != "in/a.txt=a" {
		t.Fatalf("%v %v %q", done, err, b.tree(t))
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The tools overwrite no file, follow no link, and stay within the granted folders.
func TestTransfersRefused(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, map[string]string{"work/a.txt": "a", "work/b.txt": "bb", "work/in/x.txt": "x", "work/keys/.env": "K=1", "work/repo/.git/HEAD": "ref", "shown/r.txt": "r", "outside/o.txt": "o"})
	if err := os.Symlink(filepath.Join(dir, "outside"), filepath.Join(dir, "work", "link")); err != nil {
		t.Skip("symbolic links cannot be made here")
	}
	b := newBench(t, dir)
	b.dir = filepath.Join(dir, "work")
	b.grants = []tool.Grant{{Path: b.dir, Write: true}, {Path: filepath.Join(dir, "shown")}}
	call := b.run(t)
	before := b.tree(t)
	for name, c := range map[string]struct {
		tool string
		args map[string]any
		say  string
	}{
		"taken":             {"file_move", map[string]any{"from": "a.txt", "to": "b.txt"}, "b.txt exists: a file of 2 B"},
		"taken by a folder": {"file_move", map[string]any{"from": "a.txt", "to": "in/x.txt"}, "in/x.txt exists"},
		"copy over":         {"file_copy", map[string]any{"from": "a.txt", "to": "b.txt"}, "set overwrite"},
		"folder over":       {"file_move", map[string]any{"from": "in", "to": "a.txt", "overwrite": true}, "a folder cannot replace it"},
		"itself":            {"file_move", map[string]any{"from": "a.txt", "to": "a.txt", "overwrite": true}, "the same file"},
		"into itself":       {"file_move", map[string]any{"from": "in", "to": "in/sub"}, "lies in in"},
		"missing":           {"file_move", map[string]any{"from": "none", "to": "c"}, "there is no none"},
		"outside":           {"file_move", map[string]any{"from": "a.txt", "to": "../outside/a.txt"}, "outside of"},
		"from outside":      {"file_copy", map[string]any{"from": "../outside/o.txt", "to": "o.txt"}, "outside of"},
		"read-only":         {"file_move", map[string]any{"from": "../shown/r.txt", "to": "r.txt"}, "outside of"},
		"into read-only":    {"file_copy", map[string]any{"from": "a.txt", "to": "../shown/a.txt"}, "outside of"},
		"link":              {"file_move", map[string]any{"from": "link", "to": "l"}, "is a link"},
		"through a link":    {"file_move", map[string]any{"from": "a.txt", "to": "link/a.txt"}, "leads out of"},
		"secret":            {"file_move", map[string]any{"from": "a.txt", "to": ".env"}, "secrets"},
		"secret within":     {"file_move", map[string]any{"from": "keys", "to": "k"}, "secrets"},
		"repository":        {"file_delete", map[string]any{"path": "repo", "recursive": true}, "git"},
		"workdir":           {"file_delete", map[string]any{"path": ".", "recursive": true}, "its own grant"},
		"full":              {"file_delete", map[string]any{"path": "in"}, "set recursive"},
		"a file there":      {"dir_create", map[string]any{"path": "a.txt"}, "a.txt exists: a file"},
	} {
		e, _ := call(c.tool, c.args)
		if e.OK || !strings.Contains(e.Message, c.say) || b.tree(t) != before {
			t.Errorf("%s: %+v, want %s; %q", name, e, c.say, b.tree(t))
		}
	}
	if e, got := call("file_copy", map[string]any{"from": "../shown/r.txt", "to": "r.txt"}); !e.OK || b.text("r.txt") != "r" || got["path"] != "r.txt" {
		t.Errorf("a copy of what is only read: %+v", e)
	}
	if e, got := call("dir_create", map[string]any{"path": "in"}); !e.OK || got["created"] != false {
		t.Errorf("a folder that is there: %+v %v", e, got)
	}
}

// A call that was interrupted by a crash is repeated under its key, with the result of a single
// call (OSA-35).
func TestTransferAfterCrash(t *testing.T) {
	t.Parallel()
	for name, crash := range map[string]func(dir string) error{
		"before the rename": func(dir string) error { return os.Rename(filepath.Join(dir, "out"), filepath.Join(dir, "in")) },
		"before the record": func(string) error { return nil },
		"half removed": func(dir string) error {
			return os.MkdirAll(filepath.Join(dir, "in"), 0o755)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, writeFiles(t, map[string]string{"in/a.txt": "a", "in/b.txt": "b"}))
			in := b.start(t)
			in.Key = "k1"
			roots, err := tool.NewRoots(b.dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			tools, err := file.Tools(file.Options{Roots: roots, Log: b.ledger.FileOps, Artifacts: b.ledger.Artifacts})
			if err != nil {
				t.Fatal(err)
			}
			r, err := tool.NewRegistry(tools...)
			if err != nil {
				t.Fatal(err)
			}
			for round := range 2 {
				e, err := r.Call(t.Context(), in, "file_move", []byte(`{"from":"in","to":"out"}`))
				if err != nil || !e.OK || b.tree(t) != "out/a.txt=a out/b.txt=b" {
					t.Fatalf("%+v %v %q", e, err, b.tree(t))
				}
				if round == 0 {
					if err := crash(b.dir); err != nil {
						t.Fatal(err)
					}
				}
			}
			if ops, err := b.ledger.FileOps.List(t.Context(), fileop.Filter{Run: in.Run, Limit: -1}); err != nil || len(ops) != 6 {
				t.Errorf("%d changes are on record (%v)", len(ops), err)
			}
			if _, done, err := file.UndoRun(t.Context(), b.ledger.FileOps, nil, nofollow.UntrustedDirs{}, in.Run, false, false); err != nil || !done || b.tree(t) != "in/a.txt=a in/b.txt=b" {
				t.Errorf("%v %v %q", done, err, b.tree(t))
			}
		})
	}
}

// A move to another file system makes a verified copy and removes the old files. Undo restores
// them.
func TestMoveBetweenFileSystems(t *testing.T) {
	t.Parallel()
	far, err := os.MkdirTemp("/dev/shm", "rouse-test-") //nolint:usetesting // on another file system
	if err != nil {
		t.Skip("there is no other file system here")
	}
	t.Cleanup(func() { _ = os.RemoveAll(far) })
	b := newBench(t, writeFiles(t, map[string]string{"a.txt": "a", "in/deep/b.txt": "b"}))
	if err := os.Rename(filepath.Join(b.dir, "a.txt"), filepath.Join(far, "a.txt")); err == nil {
		t.Skip("it is the same file system")
	}
	b.grants = []tool.Grant{{Path: b.dir, Write: true}, {Path: far, Write: true}}
	call := b.run(t)
	for from, to := range map[string]string{"a.txt": "new/a.txt", "in": "in"} {
		before, err := os.Stat(filepath.Join(b.dir, from))
		if err != nil {
			t.Fatal(err)
		}
		if e, _ := call("file_move", map[string]any{"from": from, "to": filepath.Join(far, to)}); !e.OK {
			t.Fatalf("%+v", e)
		}
		after, err := os.Stat(filepath.Join(far, to))
		if err != nil || after.Mode() != before.Mode() || !after.IsDir() && !after.ModTime().Equal(before.ModTime()) {
			t.Errorf("%v %v", after, err)
		}
	}
	if got := b.tree(t); got != "./" {
		t.Errorf("%q stays", got)
	}
	if _, done, err := file.UndoRun(t.Context(), b.ledger.FileOps, nil, nofollow.UntrustedDirs{}, b.last, false, false); err != nil || !done || b.tree(t) != "a.txt=a in/deep/b.txt=b" {
		t.Errorf("%v %v %q", done, err, b.tree(t))
	}
	if left, err := os.ReadDir(far); err != nil || len(left) > 0 {
		t.Errorf("%v %v", left, err)
	}
}

// A call beyond the limits of files or undo changes no file.
func TestTransferLimits(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, map[string]string{"small.txt": "a", "huge/a": "", "large.bin": "", "many/x": ""})
	for i := range 1000 {
		write(t, filepath.Join(dir, "many", fmt.Sprint(i)), "")
	}
	for path, size := range map[string]int64{"huge/a": 4<<30 + 1, "large.bin": 32<<20 + 1} { // sparse files
		if err := os.Truncate(filepath.Join(dir, path), size); err != nil {
			t.Skip("the disk holds no such file: ", err)
		}
	}
	call := newBench(t, dir).run(t)
	for name, c := range map[string]struct {
		tool string
		args map[string]any
		say  string
	}{
		"many moved":   {"file_move", map[string]any{"from": "many", "to": "other"}, "holds more than 1000 files and folders"},
		"many copied":  {"file_copy", map[string]any{"from": "many", "to": "other"}, "holds more than 1000 files and folders"},
		"many deleted": {"file_delete", map[string]any{"path": "many", "recursive": true}, "holds more than 1000 files and folders"},
		"huge":         {"file_copy", map[string]any{"from": "huge", "to": "other"}, "has more than 4.0 GiB"},
		"deleted":      {"file_delete", map[string]any{"path": "large.bin"}, "the limit for undo, and is not deleted"},
		"overwritten":  {"file_copy", map[string]any{"from": "small.txt", "to": "large.bin", "overwrite": true}, "the limit for undo, and is not overwritten"},
	} {
		e, _ := call(c.tool, c.args)
		if e.OK || !strings.Contains(e.Message, c.say) {
			t.Errorf("%s: %+v, want %s", name, e, c.say)
		}
		if _, err := os.Lstat(filepath.Join(dir, "other")); err == nil {
			t.Errorf("%s: something was made", name)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "large.bin")); err != nil || info.Size() != 32<<20+1 {
		t.Errorf("%v %v", info, err)
	}
}
