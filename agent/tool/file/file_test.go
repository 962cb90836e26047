package file_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/tool"
	"rouse/agent/tool/file"
)

func setup(t *testing.T, content map[string]string) (string, func(name string, args map[string]any) (tool.Envelope, map[string]any)) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	roots, err := tool.NewRoots(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	tools, err := file.Tools(roots)
	if err != nil {
		t.Fatal(err)
	}
	r, err := tool.NewRegistry(tools...)
	if err != nil {
		t.Fatal(err)
	}
	return dir, func(name string, args map[string]any) (tool.Envelope, map[string]any) {
		t.Helper()
		raw, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		e, err := r.Call(t.Context(), tool.Invocation{}, name, raw)
		if err != nil {
			t.Fatal(err)
		}
		var result map[string]any
		if e.OK {
			if err := json.Unmarshal(e.Result, &result); err != nil {
				t.Fatal(err)
			}
		}
		return e, result
	}
}

// TestRead: OSA-31, ranges, the gutter, limits and what is missing.
func TestRead(t *testing.T) {
	_, call := setup(t, map[string]string{
		"a.txt": "one\ntwo\nthree\nfour", "long.txt": strings.Repeat(strings.Repeat("x", 99)+"\n", 1000), "bin": "a\x00b", "latin": "caf\xe9",
		"sub/deep/name.csv": "x", "sub/.hidden": "x", "empty": "", "huge": strings.Repeat("x", 6<<20), "line": strings.Repeat("y", 20_000),
	})
	for name, c := range map[string]struct {
		args map[string]any
		text string
	}{
		"all":   {map[string]any{"path": "a.txt"}, "     1|one\n     2|two\n     3|three\n     4|four\n"},
		"range": {map[string]any{"path": "a.txt", "start_line": 2, "end_line": 3}, "     2|two\n     3|three\n"},
		"tail":  {map[string]any{"path": "a.txt", "tail_lines": 1}, "     4|four\n"},
		"past":  {map[string]any{"path": "a.txt", "start_line": 4, "end_line": 9}, "     4|four\n"},
		"empty": {map[string]any{"path": "empty"}, ""},
	} {
		e, got := call("file_read", c.args)
		if !e.OK || got["text"] != c.text || got["kind"] != "file" {
			t.Errorf("%s: %+v %v", name, e, got)
		}
	}
	if _, got := call("file_read", map[string]any{"path": "a.txt"}); got["total_lines"] != 4.0 || got["ends_with_newline"] != false {
		t.Errorf("%v", got)
	}
	if _, got := call("file_read", map[string]any{"path": "long.txt"}); got["truncated"] != true || got["next_start_line"] != 141.0 || got["next_end_line"] != 1000.0 {
		t.Errorf("next_start_line %v next_end_line %v", got["next_start_line"], got["next_end_line"])
	}
	if e, got := call("file_read", map[string]any{"path": "line"}); !e.OK || len(got["text"].(string)) > 15_100 {
		t.Errorf("a line that is too long: %+v", e)
	}
	for path, c := range map[string]struct {
		kind tool.Kind
		say  string
	}{
		"bin": {tool.KindRejected, "not a text file"}, "latin": {tool.KindRejected, "not a text file"}, "huge": {tool.KindRejected, "more than"},
		"name.csv": {tool.KindNotFound, "sub/deep/name.csv"}, "nowhere": {tool.KindNotFound, "there is no nowhere"}, "../up": {tool.KindInvalidArgs, "outside"},
	} {
		if e, _ := call("file_read", map[string]any{"path": path}); e.Kind != c.kind || !strings.Contains(e.Message, c.say) {
			t.Errorf("%s: %+v", path, e)
		}
	}
	if e, _ := call("file_read", map[string]any{"path": "a.txt", "start_line": 9}); e.Kind != tool.KindInvalidArgs {
		t.Errorf("behind the end: %+v", e)
	}
}

// TestList: OSA-15, a listing's paths can be used as they are.
func TestList(t *testing.T) {
	_, call := setup(t, map[string]string{"b.txt": "x", "sub/deep/more/leaf": "x", "sub/.hidden": "x"})
	e, got := call("file_read", map[string]any{"path": "."})
	if !e.OK || got["kind"] != "listing" || got["entry_count"] != 4.0 {
		t.Fatalf("%+v %v", e, got)
	}
	var names []string
	for _, it := range got["entries"].([]any) {
		m := it.(map[string]any)
		names = append(names, m["path"].(string)+" "+m["type"].(string))
	}
	if want := "sub directory|sub/deep directory|sub/deep/more directory|b.txt file"; strings.Join(names, "|") != want {
		t.Errorf("%v", names)
	}
	if e, _ := call("file_read", map[string]any{"path": "sub/deep"}); !e.OK {
		t.Errorf("%+v", e)
	}
}

// TestWrite: OSA-32.
func TestWrite(t *testing.T) {
	dir, call := setup(t, map[string]string{"a.txt": "one\n", "latin": "caf\xe9"})
	text := func(name string) string {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err.Error()
		}
		return string(raw)
	}
	if e, got := call("file_write", map[string]any{"path": "new/deep/b.txt", "content": "hello\n"}); !e.OK || got["created"] != true || text("new/deep/b.txt") != "hello\n" {
		t.Errorf("%+v %v", e, got)
	}
	if e, got := call("file_write", map[string]any{"path": "a.txt", "content": "two\n", "mode": "append"}); !e.OK || text("a.txt") != "one\ntwo\n" || !strings.Contains(got["diff"].(string), "+two") {
		t.Errorf("%+v %v", e, got)
	}
	if e, got := call("file_write", map[string]any{"path": "a.txt", "content": "other\n", "dry_run": true}); !e.OK || text("a.txt") != "one\ntwo\n" || got["dry_run"] != true {
		t.Errorf("%+v %v", e, got)
	}
	for path, kind := range map[string]tool.Kind{"x.xlsx": tool.KindRejected, "x.PDF": tool.KindRejected, "latin": tool.KindRejected, "../x": tool.KindInvalidArgs, "new": tool.KindInvalidArgs} {
		if e, _ := call("file_write", map[string]any{"path": path, "content": "x"}); e.Kind != kind {
			t.Errorf("%s: %+v", path, e)
		}
	}
	if e, _ := call("file_write", map[string]any{"path": "a.txt", "content": strings.Repeat("x", 30_001)}); e.Kind != tool.KindInvalidArgs {
		t.Errorf("too long: %+v", e)
	}
	if text("latin") != "caf\xe9" {
		t.Error("a file that was refused was changed")
	}
	left, err := filepath.Glob(filepath.Join(dir, ".rouse-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}
