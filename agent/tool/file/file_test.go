package file_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// caller calls a tool and returns its envelope and, if it succeeded, its result.
type caller func(name string, args map[string]any) (tool.Envelope, map[string]any)

func setup(t *testing.T, content map[string]string) (string, caller) {
	t.Helper()
	dir := writeFiles(t, content)
	return dir, on(t, dir)
}

// writeFiles creates a folder with files.
func writeFiles(t *testing.T, content map[string]string) string {
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

	return dir
}

// on returns a caller for the tools of one run in a workdir, with their aliases.
func on(t *testing.T, dir string) caller {
	t.Helper()
	return newBench(t, dir).run(t)
}

// bench is a ledger for several runs.
type bench struct {
	dir    string
	ledger *ledger.Ledger
	grants []tool.Grant
	locks  *tool.Locks
	// onWrite is called right before a file gets its final name. Optional.
	onWrite func() error
	ctx     context.Context // context of the calls; nil means that of the test
	last    int64           // id of the last run
}

func newBench(t testing.TB, dir string) *bench {
	t.Helper()
	l, err := ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db"), Blobs: filepath.Join(t.TempDir(), "blobs")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &bench{dir: dir, ledger: l}
}

// start starts another run of the same agent.
func (b *bench) start(t testing.TB) tool.Invocation {
	t.Helper()
	accepted, err := b.ledger.Enqueue(t.Context(), ledger.Request{Agent: "clerk", Trigger: domain.TriggerManual})
	if err != nil {
		t.Fatal(err)
	}

	_, a, err := b.ledger.StartAttempt(t.Context(), accepted[0].Run)
	if err != nil {
		t.Fatal(err)
	}

	b.last = a.Run
	return tool.Invocation{Run: a.Run, Attempt: a.Number, Agent: "clerk"}
}

// run creates the tools of another run.
func (b *bench) run(t testing.TB) caller {
	t.Helper()
	in := b.start(t)
	roots, err := tool.NewRoots(b.dir, b.grants)
	if err != nil {
		t.Fatal(err)
	}

	if b.onWrite != nil {
		write := b.onWrite
		roots.OnOutput(func(context.Context, tool.Output) error { return write() })
	}

	tools, err := file.Tools(file.Options{Roots: roots, Log: b.ledger.FileOps, Artifacts: b.ledger.Artifacts, Locks: b.locks, Allow: []string{"*_*", "search"}, Viewer: viewer})
	if err != nil {
		t.Fatal(err)
	}

	r, err := tool.NewRegistry(tools...)
	if err != nil {
		t.Fatal(err)
	}

	ctx, calls := cmp.Or(b.ctx, t.Context()), 0
	return func(name string, args map[string]any) (tool.Envelope, map[string]any) {
		t.Helper()
		raw, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}

		calls++
		in.Key = fmt.Sprintf("k%d", calls)
		e, err := r.Call(ctx, in, name, raw)
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

// TestRead checks ranges, line numbers, limits and missing files (OSA-31).
func TestRead(t *testing.T) {
	t.Parallel()
	_, call := setup(t, map[string]string{
		"a.txt": "one\ntwo\nthree\nfour", "long.txt": strings.Repeat(strings.Repeat("x", 99)+"\n", 1000), "bin": "a\x00b", "packed": "caf\xe9\x01\x02",
		"sub/deep/name.csv": "x", "sub/.hidden": "x", "empty": "", "huge": strings.Repeat("x", 6<<20), "line": strings.Repeat("y", 20_000),
		"umlauts": strings.Repeat(strings.Repeat("ü", 100)+"\n", 100), "other/.git/name.csv": "x", "mark": "\ufeffone\n", "mac": "one\rtwo\r",
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
		"mark":  {map[string]any{"path": "mark"}, "     1|one\n"},
		"mac":   {map[string]any{"path": "mac"}, "     1|one\n     2|two\n"},
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
	if e, got := call("file_read", map[string]any{"path": "line"}); !e.OK || len(got["text"].(string)) > 15_100 || got["truncated"] != true || len(e.Warnings) != 1 {
		t.Errorf("a line that is too long: %+v", e)
	}

	if _, got := call("file_read", map[string]any{"path": "umlauts"}); got["truncated"] != false || got["total_lines"] != 100.0 {
		t.Errorf("characters were counted as bytes: %v", got["next_start_line"])
	}

	for path, c := range map[string]struct {
		kind tool.Kind
		say  string
	}{
		"bin": {tool.KindRejected, "not a text file"}, "packed": {tool.KindRejected, "not a text file"}, "huge": {tool.KindRejected, "more than"},
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

// TestReadEncodings checks that text in an encoding of db_import is read and searched, but not
// changed (OSA-31).
func TestReadEncodings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ content, encoding, text string }{
		"windows":   {"Stra\xdfe 5\x80\nend\n", "Windows-1252", "     1|Straße 5€\n     2|end\n"},
		"utf-16":    {"\xff\xfeS\x00t\x00r\x00a\x00\xdf\x00e\x00\n\x00", "UTF-16", "     1|Straße\n"},
		"utf-16 be": {"\xfe\xff\x00S\x00t\x00r\x00a\x00\xdf\x00e", "UTF-16", "     1|Straße\n"},
		"utf-8":     {"Straße\n", "", "     1|Straße\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, call := setup(t, map[string]string{"a.txt": c.content})
			e, got := call("file_read", map[string]any{"path": "a.txt"})
			said, _ := got["encoding"].(string)
			if !e.OK || got["text"] != c.text || said != c.encoding || (len(e.Warnings) > 0) != (c.encoding != "") {
				t.Errorf("%+v %v", e, got)
			}
			if e, got := call("file_search", map[string]any{"pattern": "straße"}); !e.OK || got["total_matches"] != 1.0 {
				t.Errorf("%+v %v", e, got)
			}
			if c.encoding == "" {
				return
			}

			for tool, args := range map[string]map[string]any{
				"file_edit":  {"old_string": "a", "new_string": "b"},
				"file_write": {"content": "more", "mode": "append"},
			} {
				args["path"] = "a.txt"
				if e, _ := call(tool, args); e.OK || !strings.Contains(e.Message, c.encoding) {
					t.Errorf("%s: %+v", tool, e)
				}
			}
			if raw, err := os.ReadFile(filepath.Join(dir, "a.txt")); err != nil || string(raw) != c.content {
				t.Errorf("%q, %v", raw, err)
			}
		})
	}
}

// TestList checks that the paths of a listing are usable as arguments (OSA-15). Folders come first,
// hidden and ignored entries are omitted. The limits are three levels, 300 entries, and 20 entries
// per subfolder (OSA-31).
func TestList(t *testing.T) {
	t.Parallel()
	content := map[string]string{"b.txt": "x", "sub/deep/more/leaf": "x", "sub/deep/more/most/far": "x", "sub/deep/c.txt": "x", "sub/.hidden": "x", ".git/config": "x", "node_modules/m/x.js": "x"}
	for i := range 25 {
		content[fmt.Sprintf("wide/%02d", i)] = "x"
	}

	for i := range 350 {
		content[fmt.Sprintf("wider/%03d", i)] = "x"
	}

	dir, call := setup(t, content)
	names := func(e tool.Envelope, got map[string]any) string {
		if !e.OK || got["kind"] != "listing" {
			t.Fatalf("%+v", e)
		}

		var out []string
		for _, it := range got["entries"].([]any) {
			m := it.(map[string]any)
			out = append(out, m["path"].(string)+" "+m["type"].(string))
		}
		if float64(len(out)) != got["entry_count"] {
			t.Errorf("%d entries, counted as %v", len(out), got["entry_count"])
		}

		return strings.Join(out, "|")
	}

	e, got := call("file_read", map[string]any{"path": "sub"})
	if want := "sub/deep directory|sub/deep/more directory|sub/deep/c.txt file|sub/deep/more/most directory|sub/deep/more/leaf file"; names(e, got) != want || got["truncated"] != false {
		t.Errorf("%s", names(e, got))
	}

	e, got = call("file_read", map[string]any{"path": filepath.Join(dir, "sub"), "max_depth": 1})
	if want := filepath.ToSlash(filepath.Join(dir, "sub/deep")) + " directory"; names(e, got) != want {
		t.Errorf("%s", names(e, got))
	}

	e, got = call("file_read", map[string]any{"path": "."})
	all := names(e, got)
	if !strings.HasPrefix(all, "sub directory|wide directory|wider directory|b.txt file|") || got["truncated"] != true || strings.Count(all, "wide/") != 20 || strings.Count(all, "wider/") != 20 {
		t.Errorf("%s", all)
	}
	if e, got := call("file_read", map[string]any{"path": "wide"}); got["entry_count"] != 25.0 || got["truncated"] != false {
		t.Errorf("%+v", e)
	}
	if e, got := call("file_read", map[string]any{"path": "wider"}); got["entry_count"] != 300.0 || got["truncated"] != true {
		t.Errorf("%+v", e)
	}
}

// TestWrite: OSA-32.
func TestWrite(t *testing.T) {
	t.Parallel()
	dir, call := setup(t, map[string]string{"a.txt": "one\n", "latin": "caf\xe9", "locked": "x", "shared": "x", "nul": "a\x00b"})
	text := func(name string) string {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err.Error()
		}
		return string(raw)
	}
	if err := os.Chmod(filepath.Join(dir, "locked"), 0o444); err != nil {
		t.Fatal(err)
	}
	if e, got := call("file_write", map[string]any{"path": "new/deep/b.txt", "content": "hello\n"}); !e.OK || got["created"] != true || text("new/deep/b.txt") != "hello\n" {
		t.Errorf("%+v %v", e, got)
	}
	if e, got := call("file_write", map[string]any{"path": "a.txt", "content": "two\n", "mode": "append"}); !e.OK || got["created"] != false || text("a.txt") != "one\ntwo\n" {
		t.Errorf("%+v %v", e, got)
	}

	if e, got := call("file_write", map[string]any{"path": "a.txt", "content": "other\n", "dry_run": true}); !e.OK || text("a.txt") != "one\ntwo\n" || got["dry_run"] != true {
		t.Errorf("%+v %v", e, got)
	}
	if e, _ := call("file_write", map[string]any{"path": "dry/deep/x", "content": "x", "dry_run": true}); !e.OK || !strings.Contains(text("dry"), "no such") && !strings.Contains(text("dry"), "cannot find") {
		t.Errorf("a dry run made a folder: %+v", e)
	}

	for path, kind := range map[string]tool.Kind{"x.xlsx": tool.KindRejected, "x.PDF": tool.KindRejected, "latin": tool.KindRejected, "nul": tool.KindRejected,
		"locked": tool.KindRejected, "../x": tool.KindInvalidArgs, "new": tool.KindInvalidArgs, "": tool.KindInvalidArgs} {
		if e, _ := call("file_write", map[string]any{"path": path, "content": "x"}); e.Kind != kind {
			t.Errorf("%s: %+v", path, e)
		}
	}

	for why, content := range map[string]string{"too long": strings.Repeat("x", 30_001), "no text": "a\x00b"} {
		if e, _ := call("file_write", map[string]any{"path": "a.txt", "content": content}); e.Kind != tool.KindInvalidArgs || e.Field != "content" {
			t.Errorf("%s: %+v", why, e)
		}
	}

	if text("latin") != "caf\xe9" || text("locked") != "x" {
		t.Error("a file that was refused was changed")
	}

	left, err := filepath.Glob(filepath.Join(dir, ".rouse-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// A file keeps its mode with any umask. A link is not replaced by a file.
func TestWriteKeepsWhatItReplaces(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("modes and links are others here")
	}

	dir, call := setup(t, map[string]string{"shared": "x", "target": "x"})
	shared, link := filepath.Join(dir, "shared"), filepath.Join(dir, "link")
	if err := os.Chmod(shared, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("target", link); err != nil {
		t.Fatal(err)
	}
	if e, _ := call("file_write", map[string]any{"path": "shared", "content": "y"}); !e.OK {
		t.Errorf("%+v", e)
	}

	if info, err := os.Stat(shared); err != nil || info.Mode().Perm() != 0o666 {
		t.Errorf("the mode became %v (%v)", info.Mode(), err)
	}
	if e, _ := call("file_write", map[string]any{"path": "link", "content": "y"}); e.Kind != tool.KindRejected {
		t.Errorf("%+v", e)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone (%v)", err)
	}
}

var update = flag.Bool("update", false, "rewrite the golden files")

// moments matches the times in a result, which differ between test runs.
var moments = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)`)

// TestGolden compares the results of all tools with golden files, in the form that a model reads.
// It includes invalid calls (OSA-19, OSA-31 to OSA-35, YOA-01 to YOA-05).
func TestGolden(t *testing.T) {
	t.Parallel()
	invoice, err := os.ReadFile("testdata/invoice.pdf")
	if err != nil {
		t.Fatal(err)
	}

	var many strings.Builder
	for i := range 200 {
		fmt.Fprintf(&many, "item %d costs <%d> & more\n", i, i*7)
	}

	type order struct {
		tool string
		args map[string]any
	}
	write := order{"file_write", map[string]any{"path": "notes/a.md", "content": "- three\n", "mode": "append"}}
	edit := order{"file_edit", map[string]any{"path": "many.txt", "edits": []any{map[string]any{"old_string": "item 7 costs <49>", "new_string": "item 7"}, map[string]any{"old_string": "item 9 costs <63> & more\n", "new_string": ""}}}}
	listing := map[string]bool{"list": true, "alias-list": true, "search": true, "search-names": true, "alias-search": true} // cases that need a folder with only these files
	first := map[string][]order{"history": {write, edit}, "undo": {write}, "undo-nothing": nil, "undo-path": {write, write}, "share-again": {{"share_artifact", map[string]any{"path": "notes/a.md"}}}}
	for name, c := range map[string]order{
		"read":         {"file_read", map[string]any{"path": "notes/a.md"}},
		"read-range":   {"file_read", map[string]any{"path": "many.txt", "start_line": 99, "end_line": 101}},
		"read-tail":    {"file_read", map[string]any{"path": "many.txt", "tail_lines": 2}},
		"read-cut":     {"file_read", map[string]any{"path": "many.txt", "max_chars": 100}},
		"read-line":    {"file_read", map[string]any{"path": "line", "max_chars": 20}},
		"read-missing": {"file_read", map[string]any{"path": "a.md"}},
		"list":         {"file_read", map[string]any{"path": "."}},
		"write-new":    {"file_write", map[string]any{"path": "new.md", "content": "# New\n"}},
		"write-append": {"file_write", map[string]any{"path": "notes/a.md", "content": "- three\n", "mode": "append"}},
		"write-large":  {"file_write", map[string]any{"path": "many.txt", "content": "gone\n", "dry_run": true}},
		"write-kind":   {"file_write", map[string]any{"path": "report.xlsx", "content": "x"}},
		"edit":         {"file_edit", map[string]any{"path": "many.txt", "old_string": "item 7 costs <49>", "new_string": "item 7 costs <50>"}},
		"edit-missing": {"file_edit", map[string]any{"path": "many.txt", "old_string": "item 7 costs <50>", "new_string": "x"}},
		"edit-twice":   {"file_edit", map[string]any{"path": "many.txt", "old_string": "more\n", "new_string": "less\n"}},
		"search":       {"file_search", map[string]any{"pattern": "ITEM 19", "max_results": 3}},
		"search-names": {"file_search", map[string]any{"pattern": "*.md", "target": "files"}},
		"alias-read":   {"read_file", map[string]any{"path": "many.txt", "offset": 3, "limit": 2}},
		"alias-edit":   {"edit_file", map[string]any{"path": "notes/a.md", "old_text": "- one\n", "new_text": "- 1\n- 2\n"}},
		"alias-write":  {"write_file", map[string]any{"path": "new.md", "content": "# New\n"}},
		"alias-search": {"search", map[string]any{"pattern": `<\d00>`, "include": "*.txt"}},
		"alias-list":   {"list_files", map[string]any{}},

		"read-pdf":       {"file_read", map[string]any{"path": "invoice.pdf"}},
		"read-sheet":     {"file_read", map[string]any{"path": "sums.xlsx"}},
		"read-picture":   {"file_read", map[string]any{"path": "dot.gif"}},
		"read-binary":    {"file_read", map[string]any{"path": "binary"}},
		"read-outside":   {"file_read", map[string]any{"path": "/etc/hostname-that-is-not"}},
		"read-secret":    {"file_read", map[string]any{"path": "server.pem"}},
		"edit-batch":     edit,
		"edit-same":      {"file_edit", map[string]any{"path": "many.txt", "old_string": "item 7 costs", "new_string": "item 7 costs"}},
		"search-none":    {"file_search", map[string]any{"pattern": "no such text"}},
		"search-pattern": {"search", map[string]any{"pattern": "("}},
		"history":        {"file_operation_history", map[string]any{}},
		"undo":           {"file_undo", map[string]any{}},
		"undo-nothing":   {"file_undo", map[string]any{}},
		"undo-path":      {"file_undo", map[string]any{"path": "notes/a.md"}},
		"undo-unknown":   {"file_undo", map[string]any{"operation_id": "none"}},
		"share":          {"share_artifact", map[string]any{"content": "# Report\n", "filename": "report.md", "description": "The week"}},
		"share-again":    {"share_artifact", map[string]any{"path": "notes/a.md"}},
		"share-both":     {"share_artifact", map[string]any{"path": "notes/a.md", "content": "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, call := setup(t, map[string]string{"notes/a.md": "# Notes\r\n- one\n- tw\u00f6", "many.txt": many.String(), "line": strings.Repeat("\u00fc", 50) + "\nnext\n", ".hidden": "x"})
			if !listing[name] {
				for file, text := range map[string]string{"invoice.pdf": string(invoice), "dot.gif": "GIF89a", "binary": "a\x00b", "server.pem": "x",
					"sums.xlsx": spreadsheet(t, map[string]string{"Sums": `<row r="1"><c r="A1" t="str"><v>name</v></c><c r="B1" t="str"><v>sum</v></c></row><row r="2"><c r="A2" t="str"><v>a</v></c><c r="B2"><v>4.5</v></c></row>`}, "Sums")} {
					if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}

			for _, before := range first[name] {
				if e, _ := call(before.tool, before.args); !e.OK {
					t.Fatalf("%+v", e)
				}
			}

			e, _ := call(c.tool, c.args)
			raw, err := e.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}

			raw = moments.ReplaceAll(bytes.ReplaceAll(raw, []byte(dir), []byte("DIR")), []byte("TIME"))
			golden := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(golden, append(raw, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}

			want, err := os.ReadFile(golden)
			if err != nil || string(raw)+"\n" != string(want) {
				t.Errorf("answered\n%s\nwant\n%s(%v)", raw, want, err)
			}
		})
	}
}
