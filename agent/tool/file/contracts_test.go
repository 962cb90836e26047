package file_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rouse/agent/tool"
	"rouse/internal/contract"
)

type object = map[string]any

// TestListing: OSA-15.
func TestListing(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSA-15")
	q := row.Quote
	_, call := setup(t, map[string]string{"sub/deep/a.txt": "x"})
	_, got := call("file_read", object{"path": "sub"})
	entries := got[q("entries")].([]any)
	if got["kind"] != q("listing") || got[q("path")] != "sub" || got[q("entry_count")] != 2.0 || got[q("truncated")] != false || len(entries) != 2 {
		t.Fatalf("%v", got)
	}
	for i, want := range []string{q("directory"), q("file")} {
		e := entries[i].(object)
		if e["type"] != want || e[q("name")] != filepath.Base(e["path"].(string)) {
			t.Errorf("entry %d: %v", i, e)
		}
		if r, again := call("file_read", object{"path": e["path"]}); !r.OK || again["kind"] != map[string]string{"directory": "listing", "file": q("file")}[want] {
			t.Errorf("%v is read as %v", e["path"], again)
		}
	}
	if e, _ := call("file_read", object{"path": "none"}); string(e.Kind) != q("not_found") {
		t.Errorf("%+v", e)
	}
}

// TestWriteTool: OSA-32, UNI-05.
func TestWriteTool(t *testing.T) {
	t.Parallel()
	row, alias := contract.Of(t, "OSA-32"), contract.Of(t, "UNI-05")
	q := row.Quote
	for _, name := range []string{q("file_write"), alias.Quote("write_file")} {
		b := newBench(t, writeFiles(t, map[string]string{"latin": "caf\xe9"}))
		call := b.run(t)
		write := func(args object) (tool.Envelope, object) { return call(name, args) }
		for mode, want := range map[string]string{q("overwrite"): "two\n", q("append"): "one\ntwo\n"} {
			path := "new/" + mode
			write(object{q("path"): path, q("content"): "one\n"})
			e, got := write(object{"path": path, "content": "two\n", q("mode"): mode})
			if !e.OK || b.text(path) != want || got[q("operation_id")] == nil || got[q("risk_level")] == nil || !strings.Contains(got[q("diff")].(string), "+two") {
				t.Errorf("%s %s: %+v %v", name, mode, e, got)
			}
			if e, got := write(object{"path": path, "content": "x", q("dry_run"): true}); !e.OK || got["operation_id"] != nil || b.text(path) != want {
				t.Errorf("%s, dry: %+v %v", name, e, got)
			}
		}

		for _, path := range append(row.Between("files such as ", ", and for"), "latin") {
			if e, _ := write(object{"path": path, "content": "x"}); string(e.Kind) != q("rejected") {
				t.Errorf("%s %s: %+v", name, path, e)
			}
		}
		most := row.Number("30,000")
		for size, want := range map[int]bool{most: true, most + 1: false} {
			if e, _ := write(object{"path": "long", "content": strings.Repeat("x", size)}); e.OK != want {
				t.Errorf("%s of %d characters: %+v", name, size, e)
			}
		}
		_, got := write(object{"path": "lines", "content": strings.Repeat("x\n", 1000)})
		if n := strings.Count(got["diff"].(string), "\n"); n < 70 || n > row.Number("80")+1 {
			t.Errorf("%s: the diff has %d lines", name, n)
		}
	}
}

// TestEditTool: OSA-33.
func TestEditTool(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSA-33")
	q := row.Quote
	const text = "alpha\n  beta\n\ngamma\nbeta\n"
	dir, call := setup(t, nil)
	edit := func(args object) (tool.Envelope, string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args[q("path")] = "a.txt"
		e, _ := call(q("file_edit"), args)
		now, err := os.ReadFile(filepath.Join(dir, "a.txt"))
		if err != nil {
			t.Fatal(err)
		}
		return e, string(now)
	}

	most := row.Number("100")
	many := make([]object, most+1)
	for i := range many {
		many[i] = object{"old_string": "alpha", "new_string": "alpha "}
	}
	one := object{q("old_string"): "alpha\n", q("new_string"): ""}
	chain := []object{{"old_string": "alpha", "new_string": "one"}, {"old_string": "one", "new_string": "two"}}
	for name, c := range map[string]struct {
		args object
		want string // "" if the call is refused
	}{
		"an empty text deletes":  {maps.Clone(one), strings.TrimPrefix(text, "alpha\n")},
		"in order":               {object{q("edits"): chain}, strings.Replace(text, "alpha", "two", 1)},
		"as many as are allowed": {object{"edits": many[:most]}, strings.Replace(text, "alpha", "alpha"+strings.Repeat(" ", most), 1)},
		"one more":               {object{"edits": many}, ""},
		"twice":                  {object{"old_string": "beta", "new_string": "x"}, ""},
		"everywhere":             {object{"old_string": "beta", "new_string": "x", q("replace_all"): true}, strings.ReplaceAll(text, "beta", "x")},
		"all or nothing":         {object{"edits": append(slices.Clone(chain), object{"old_string": "nowhere at all", "new_string": "x"})}, ""},
	} {
		if e, now := edit(c.args); e.OK != (c.want != "") || e.OK && now != c.want || !e.OK && now != text {
			t.Errorf("%s: %+v %q", name, e, now)
		}
	}
	one[q("dry_run")] = true
	if e, now := edit(one); !e.OK || now != text {
		t.Errorf("dry: %+v %q", e, now)
	}
	for old, says := range map[string]string{"     1|alpha": q("line numbers"), "alpha\n\tbeta": q("blanks or tabs"), "  beta\ngamma": q("empty lines"), "gamna": q("most like it")} {
		if e, _ := edit(object{"old_string": old, "new_string": "x"}); e.OK || !strings.Contains(e.Message, says) {
			t.Errorf("%q: %+v", old, e)
		}
	}
}

// TestSearchTool: OSA-34.
func TestSearchTool(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSA-34")
	q := row.Quote
	_, call := setup(t, map[string]string{"sub/a.txt": strings.Repeat("Needle\n", 99), "sub/b.go": "needle\n", "c.txt": "needle\n", "bin": "needle\x00"})
	search := func(args object) (string, object) {
		e, got := call(q("file_search"), args)
		if !e.OK {
			t.Errorf("%v: %+v", args, e)
		}
		return formatMatches(got), got
	}

	all, got := search(object{q("pattern"): "nEEdle"})
	if n := strings.Count(all, "|") + 1; n != row.Number("50") || got[q("skipped")] == nil {
		t.Errorf("%d matches, %v", n, got["skipped"])
	}
	for want, args := range map[string]object{
		"sub/b.go:1:needle":  {"pattern": "needle", q("target"): q("content"), q("path"): "sub", q("file_pattern"): "*.go"},
		"sub/a.txt|sub/b.go": {"pattern": "sub/*", "target": q("files")},
		"c.txt:1:needle":     {"pattern": "needle", q("max_results"): 1},
	} {
		if got, _ := search(args); got != want {
			t.Errorf("%v: %s, want %s", args, got, want)
		}
	}
}

// TestListTool: YOA-03, UNI-02.
func TestListTool(t *testing.T) {
	t.Parallel()
	row, both := contract.Of(t, "YOA-03"), contract.Of(t, "UNI-02")
	q := row.Quote
	content := map[string]string{"b.txt": "x", "a/b/c/d/e.txt": "x", "Cargo.toml": ""}
	for _, left := range row.Between("sorted, without ", ", and at most") {
		content[left+"/b.txt"] = "x"
	}
	for i := range 250 {
		content[fmt.Sprintf("many/%03d", i)] = "x"
	}
	_, call := setup(t, content)
	list := func(args object) object {
		e, got := call(q("list_files"), args)
		if !e.OK {
			t.Errorf("%v: %+v", args, e)
		}
		return got
	}

	if got := list(object{q("pattern"): "b.txt"}); got["text"] != "b.txt\n" || got[q("truncated")] != false {
		t.Errorf("%v", got)
	}
	got := list(object{q("path"): "many"})
	lines := strings.Fields(got["text"].(string))
	if len(got["entries"].([]any)) != row.Number("200") || got[q("total")] != 250.0 || got["truncated"] != true || !slices.IsSorted(lines) {
		t.Errorf("%d files of %v", len(lines), got["total"])
	}
	for depth, want := range map[int]string{3: "", 5: "a/b/c/d/e.txt\n"} {
		if got := list(object{"path": "a", q("max_depth"): depth}); got["text"] != want && !strings.HasPrefix(got["text"].(string), "no ") {
			t.Errorf("%d folders down: %v", depth, got)
		}
	}
	if e, _ := call("list_files", object{"path": "none"}); e.OK {
		t.Errorf("%+v", e)
	}

	_, read := call(both.Quote("file_read"), object{"path": "a", "max_depth": 9})
	_, listed := call(both.Quote("list_files"), object{"path": "a", "max_depth": 9})
	entries := read[both.Quote("entries")].([]any)
	if read["kind"] != both.Quote("listing") || listed[both.Quote("text")] != "a/b/c/d/e.txt\n" || entries[len(entries)-1].(object)["path"] != "a/b/c/d/e.txt" || !strings.Contains(fmt.Sprint(listed["entries"]), "path:a/b/c/d/e.txt") {
		t.Errorf("%v\n%v", read, listed)
	}
}

// TestSearchExpressionTool: YOA-04, UNI-03.
func TestSearchExpressionTool(t *testing.T) {
	t.Parallel()
	row, both := contract.Of(t, "YOA-04"), contract.Of(t, "UNI-03")
	q := row.Quote
	found := q("a.go:1:func One() {}")
	_, call := setup(t, map[string]string{"a.go": "func One() {}\nfunc two() {}\n", "sub/many.txt": strings.Repeat("many\n", 99),
		both.Quote(".gitignore"): "*.log\n", "x.log": "func One() {}\n", both.Quote("node_modules") + "/x.go": "func One() {}\n"})
	for want, args := range map[string]object{
		found + "\n":             {q("pattern"): `^FUNC o\w+`},
		"no matches\n":           {"pattern": `^FUNC o\w+`, q("case_sensitive"): true},
		"a.go:2:func two() {}\n": {"pattern": "two", q("include"): "*.go", q("path"): "."},
	} {
		if e, got := call(q("search"), args); !e.OK || got["text"] != want || got[q("matches")] != float64(strings.Count(want, ":1:")+strings.Count(want, ":2:")) {
			t.Errorf("%v: %+v %v", args, e, got)
		}
	}
	if e, _ := call("search", object{"pattern": "(a"}); string(e.Kind) != q("invalid_args") {
		t.Errorf("%+v", e)
	}

	_, text := call(both.Quote("file_search"), object{"pattern": "func one() {}"})
	_, expression := call(both.Quote("search"), object{"pattern": `func one\(\)`})
	if formatMatches(text) != found || expression["text"] != found+"\n" {
		t.Errorf("%v\n%v", text, expression)
	}
	most := both.Number("50")
	_, text = call("file_search", object{"pattern": "many"})
	_, expression = call("search", object{"pattern": "man."})
	if a, b := strings.Count(formatMatches(text), "many.txt:"), strings.Count(expression["text"].(string), "many.txt:"); a != most || b != most || b != row.Number("50") {
		t.Errorf("%d and %d lines", a, b)
	}
}

// TestReaders: UNI-01.
func TestReaders(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "UNI-01")
	q := row.Quote
	_, call := setup(t, map[string]string{"a.txt": "one\ntwo\nthree\n"})
	for name, line := range map[string]string{q("file_read"): q("     2|two"), q("read_file"): q("   2 | two")} {
		for _, args := range []object{{q("start_line"): 2, q("end_line"): 2}, {q("tail_lines"): 2}, {q("offset"): 2, q("limit"): 1}, {"offset": 2, q("max_chars"): 12}} {
			args["path"] = "a.txt"
			e, got := call(name, args)
			if text, _ := got["text"].(string); !e.OK || got["kind"] != q("file") || !strings.Contains(text, line) || strings.Contains(text, "one") {
				t.Errorf("%s %v: %+v %q", name, args, e, text)
			}
		}
	}
}

// TestEditors: UNI-04.
func TestEditors(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "UNI-04")
	q := row.Quote
	b := newBench(t, writeFiles(t, map[string]string{"a.txt": "x x\n"}))
	call := b.run(t)
	n := 0
	for _, name := range []string{q("file_edit"), q("edit_file")} {
		for _, names := range [][2]string{{q("old_text"), q("new_text")}, {q("old_string"), q("new_string")}} {
			pair := object{names[0]: "x", names[1]: "y", q("replace_all"): true}
			for _, args := range []object{maps.Clone(pair), {q("edits"): []any{pair}}} {
				args["path"], args[q("dry_run")] = "a.txt", true
				if e, _ := call(name, args); !e.OK || b.text("a.txt") != "x x\n" {
					t.Errorf("%s %v, dry: %+v", name, args, e)
				}
				delete(args, "dry_run")
				if e, _ := call(name, args); !e.OK || b.text("a.txt") != "y y\n" {
					t.Errorf("%s %v: %+v", name, args, e)
				}
				if e, _ := call("file_undo", nil); !e.OK || b.text("a.txt") != "x x\n" {
					t.Errorf("%s %v is not undone: %+v", name, args, e)
				}
				n++
			}
		}
	}
	if _, got := call("file_operation_history", nil); got["count"] != float64(n) {
		t.Errorf("%d changes are in the log as %v", n, got["count"])
	}
}

// TestReadTool: OSA-31.
func TestReadTool(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSA-31")
	q := row.Quote
	content := map[string]string{"a.txt": "one\ntwo\nthree", "long.txt": strings.Repeat(strings.Repeat("x", 99)+"\n", 1000), "sub/name.csv": "x", "deep/b/c/d.txt": "x",
		"a.xlsx": spreadsheet(t, map[string]string{"Data": `<row><c><v>1</v></c><c><v>2</v></c></row><row><c><v>3</v></c></row>`}, "Data")}
	for i := range 350 {
		content[fmt.Sprintf("wide/%03d", i)] = "x"
	}
	_, call := setup(t, content)
	read := func(args object) object {
		e, got := call(q("file_read"), args)
		if !e.OK {
			t.Errorf("%v: %+v", args, e)
		}
		return got
	}

	for _, args := range []object{{q("start_line"): 2, q("end_line"): 2}, {q("tail_lines"): 2, q("max_chars"): 12}} {
		args[q("path")] = "a.txt"
		if got := read(args); !strings.HasPrefix(got["text"].(string), q("     2|two")) || got[q("total_lines")] != 3.0 || got[q("ends_with_newline")] != false {
			t.Errorf("%v: %v", args, got)
		}
	}
	most := row.Number("15,000")
	got := read(object{"path": "long.txt"})
	if n := len(got["text"].(string)); n > most || n < most-200 || got[q("truncated")] != true || got[q("next_end_line")] != 1000.0 || got[q("next_start_line")].(float64) < 100 {
		t.Errorf("%d characters, then %v to %v", n, got["next_start_line"], got["next_end_line"])
	}
	if got := read(object{"path": "a.xlsx", q("sheet_name"): "Data", q("max_rows"): 1, q("max_columns"): 1}); fmt.Sprint(got["rows"]) != "[map[cells:[1] row:1]]" {
		t.Errorf("%v", got)
	}
	if got := read(object{"path": "wide"}); got["entry_count"] != float64(row.Number("300")) {
		t.Errorf("%v entries", got["entry_count"])
	}
	if got := read(object{"path": "deep", q("max_depth"): 1}); got["entry_count"] != 1.0 {
		t.Errorf("%v", got)
	}
	if e, _ := call("file_read", object{"path": "name.csv"}); string(e.Kind) != q("not_found") || !strings.Contains(e.Message, "sub/name.csv") {
		t.Errorf("%+v", e)
	}
}

// TestUndoTools: OSA-35.
func TestUndoTools(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSA-35")
	q := row.Quote
	b := newBench(t, t.TempDir())
	call := b.run(t)
	operations := func(args object) []any {
		e, got := call(q("file_operation_history"), args)
		if !e.OK {
			t.Errorf("%v: %+v", args, e)
		}
		return got["operations"].([]any)
	}

	var types []string
	for _, c := range []struct {
		tool string
		args object
	}{
		{"file_write", object{"path": "a", "content": "one"}}, {"file_write", object{"path": "a", "content": "two"}}, {"file_edit", object{"path": "a", "old_string": "two", "new_string": "three"}},
		{"file_move", object{"from": "a", "to": "b"}}, {"file_copy", object{"from": "b", "to": "c"}}, {"file_delete", object{"path": "c"}}, {"dir_create", object{"path": "d"}},
	} {
		if e, _ := call(c.tool, c.args); !e.OK {
			t.Fatalf("%s: %+v", c.tool, e)
		}
		made := map[string]int{"file_move": 2}[c.tool] // a move changes both paths
		list := operations(object{q("limit"): max(made, 1)})
		last := list[len(list)-1].(object)
		types = append(types, last["type"].(string))
		if last[q("can_undo")] != true || last[q("batch_id")] == "" {
			t.Errorf("%s: %v", c.tool, last)
		}
	}
	if want := row.Between("The types are ", ". Each"); !slices.Equal(types, want) {
		t.Errorf("types %q, want %q", types, want)
	}

	if _, got := call(q("file_undo"), nil); got["count"] != 1.0 || b.text("d") != "none" {
		t.Errorf("the last: %v", got)
	}
	if e, _ := call("file_undo", object{q("operation_id"): "99"}); string(e.Kind) != q("not_found") {
		t.Errorf("%+v", e)
	}
	last := operations(object{q("path"): "c"})[0].(object)
	if e, _ := call("file_undo", object{"operation_id": last["operation_id"]}); !e.OK || b.text("c") != "three" {
		t.Errorf("%+v: %s", e, b.text("c"))
	}
	if e, _ := call("file_undo", object{"path": "c"}); !e.OK || b.text("c") != "none" {
		t.Errorf("%+v: %s", e, b.text("c"))
	}

	for i := range row.Number("100") + 1 {
		call("file_write", object{"path": "x", "content": fmt.Sprint(i)})
	}
	for limit, want := range map[int]int{0: row.Number("20"), 1000: row.Number("100")} {
		if n := len(operations(object{"limit": limit})); n != want {
			t.Errorf("limit %d: %d changes", limit, n)
		}
	}
}
