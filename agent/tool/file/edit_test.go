package file_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/tool"
	"rouse/internal/contract"
)

// TestEdit checks edits of one or many places, in order, all or none (OSA-33, UNI-04).
func TestEdit(t *testing.T) {
	t.Parallel()
	type m = map[string]any
	const text = "alpha\n  beta\n\ngamma\nbeta\n"
	many := make([]m, 101)
	for i := range many {
		many[i] = m{"old_string": "a", "new_string": "b"}
	}

	// All cases share a ledger, because opening one costs more than an edit.
	ledger := newBench(t, "").ledger
	for name, c := range map[string]struct {
		content string
		args    m
		want    string // "" if the file must not change
		say     string // part of the refusal
	}{
		"once":             {text, m{"old_string": "alpha", "new_string": "omega"}, "omega\n  beta\n\ngamma\nbeta\n", ""},
		"deleted":          {text, m{"old_string": "alpha\n"}, "  beta\n\ngamma\nbeta\n", ""},
		"everywhere":       {text, m{"old_string": "beta", "new_string": "b", "replace_all": true}, "alpha\n  b\n\ngamma\nb\n", ""},
		"in order":         {text, m{"edits": []m{{"old_string": "alpha", "new_string": "one"}, {"old_string": "one", "new_string": "two"}}}, "two\n  beta\n\ngamma\nbeta\n", ""},
		"one of a batch":   {text, m{"edits": []m{{"old_string": "beta", "new_string": "b", "replace_all": true}, {"old_string": "alpha", "new_string": "a"}}}, "a\n  b\n\ngamma\nb\n", ""},
		"all of a batch":   {text, m{"replace_all": true, "edits": []m{{"old_string": "alpha", "new_string": "a"}, {"old_string": "beta", "new_string": "b"}}}, "a\n  b\n\ngamma\nb\n", ""},
		"other ends":       {"one\r\ntwo\r\n", m{"old_string": "one\ntwo", "new_string": "1\n2"}, "1\r\n2\r\n", ""},
		"ends of old Macs": {"one\rtwo\r", m{"old_string": "one\ntwo", "new_string": "1\n2"}, "1\r2\r", ""},
		"twice":            {text, m{"old_string": "beta", "new_string": "x"}, "", "occurs 2 times, in lines 2, 5"},
		"batch fails":      {text, m{"edits": []m{{"old_string": "alpha", "new_string": "x"}, {"old_string": "nowhere at all", "new_string": "y"}}}, "", "the 1 edit before it would have been made, and nothing was changed"},
		"too many":         {text, m{"edits": many}, "", "there are 101 edits"},
		"both":             {text, m{"old_string": "alpha", "edits": many[:1]}, "", "not both"},
		"the same":         {text, m{"old_string": "alpha", "new_string": "alpha"}, "", "are the same"},
		"nothing":          {text, m{"new_string": "x"}, "", "old_string is empty"},
		"gutter":           {text, m{"old_string": "     1|alpha\n     2|  beta", "new_string": "x"}, "", "line numbers in it, which are shown and the file does not have; without them it begins in line 1"},
		"other gutter":     {text, m{"old_string": "   4 | gamma\n   5 | beta", "new_string": "x"}, "", "without them it begins in line 4"},
		"blanks":           {text, m{"old_string": "alpha\n\tbeta", "new_string": "x"}, "", "differs in blanks or tabs from line 1:\n     1|alpha\n     2|  beta"},
		"empty lines":      {text, m{"old_string": "  beta\ngamma", "new_string": "x"}, "", "differs in empty lines from line 2:\n     2|  beta\n     3|\n     4|gamma"},
		"first line":       {text, m{"old_string": "gamma\nzeta", "new_string": "x"}, "", "its first line is; there it reads line 4:\n     4|gamma\n     5|beta"},
		"like it":          {text, m{"old_string": "gamna", "new_string": "x"}, "", "most like it is line 4:\n     4|gamma"},
		"nothing like it":  {text, m{"old_string": "something else entirely", "new_string": "x"}, "", "nor anything like it"},
		"blanks alone":     {text, m{"old_string": " \t ", "new_string": "x"}, "", "nothing but blanks"},
		"NUL":              {text, m{"old_string": "alpha", "new_string": "a\x00"}, "", "NUL"},
		"too large":        {text, m{"old_string": "a", "new_string": strings.Repeat("x", 1<<20), "replace_all": true}, "", "would have more than"},
	} {
		for _, dry := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s dry %v", name, dry), func(t *testing.T) {
				dir := writeFiles(t, map[string]string{"a.txt": c.content})
				call := (&bench{dir: dir, ledger: ledger}).run(t)
				args := m{"path": "a.txt", "dry_run": dry}
				for k, v := range c.args {
					args[k] = v
				}

				e, got := call("file_edit", args)
				now, err := os.ReadFile(filepath.Join(dir, "a.txt"))
				if err != nil {
					t.Fatal(err)
				}

				switch {
				case e.OK != (c.want != "") || !strings.Contains(e.Message, c.say):
					t.Errorf("%+v", e)
				case !e.OK && e.Field == "" || e.OK && (got["operation_id"] == nil) != dry:
					t.Errorf("%+v %v", e, got)
				case (dry || !e.OK) && string(now) != c.content || e.OK && !dry && string(now) != c.want:
					t.Errorf("the file is %q", now)
				}
			})
		}
	}
}

// Files that must not be edited stay unchanged.
func TestEditRefused(t *testing.T) {
	t.Parallel()
	dir, call := setup(t, map[string]string{"latin": "caf\xe9 alpha", "locked": "alpha", "sub/b.txt": "alpha", "huge": strings.Repeat("x", 6<<20)})
	if err := os.Chmod(filepath.Join(dir, "locked"), 0o444); err != nil {
		t.Fatal(err)
	}

	for path, c := range map[string]struct {
		kind tool.Kind
		say  string
	}{
		"latin": {tool.KindRejected, "not a text file"}, "locked": {tool.KindRejected, "read-only"}, "b.txt": {tool.KindNotFound, "sub/b.txt"}, "sub": {tool.KindInvalidArgs, "folder"},
		"../x": {tool.KindInvalidArgs, "outside"}, "huge": {tool.KindRejected, "more than"}, "x.pdf": {tool.KindRejected, ".pdf"}, ".env": {tool.KindRejected, "secrets"},
	} {
		for _, name := range []string{"file_edit", "edit_file"} {
			args := map[string]any{"path": path, "old_string": "alpha", "new_string": "x"}
			if name == "edit_file" {
				args = map[string]any{"path": path, "old_text": "alpha", "new_text": "x"}
			}
			if e, _ := call(name, args); e.Kind != c.kind || !strings.Contains(e.Message, c.say) {
				t.Errorf("%s of %s: %+v", name, path, e)
			}
		}
	}
}

// TestEditFile checks that the alias reports numbers of lines and requires a unique match (YOA-02).
func TestEditFile(t *testing.T) {
	t.Parallel()
	q := contract.Of(t, "YOA-02").Quote
	dir, call := setup(t, map[string]string{"a.txt": "one\ntwo\ntwo\n"})
	if e, got := call(q("edit_file"), map[string]any{q("path"): "a.txt", q("old_text"): "one\n", q("new_text"): "1\n1\n"}); !e.OK || got[q("old_lines")] != 1.0 || got[q("new_lines")] != 2.0 || got["text"] != "replaced 1 line by 2 lines in a.txt" {
		t.Errorf("%+v %v", e, got)
	}
	if e, got := call("edit_file", map[string]any{"path": "a.txt", "old_text": "two", "new_text": "two"}); !e.OK || !strings.Contains(got["text"].(string), q("no changes")) {
		t.Errorf("%+v %v", e, got)
	}

	for old, say := range map[string]string{"two": "occurs 2 times", "": "empty", "tow": "most like it is line 3:\n     3|two", "1\nthree": "there it reads line 1:\n     1|1\n     2|1\n     3|two"} {
		if e, _ := call("edit_file", map[string]any{"path": "a.txt", "old_text": old, "new_text": "x"}); e.OK || !strings.Contains(e.Message, say) || e.Field != "old_text" {
			t.Errorf("%q: %+v", old, e)
		}
	}

	if now, _ := os.ReadFile(filepath.Join(dir, "a.txt")); string(now) != "1\n1\ntwo\ntwo\n" {
		t.Errorf("%q", now)
	}
}
