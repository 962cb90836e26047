package file_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/tool"
	"rouse/agent/tool/file"
)

// The tools of both families accept the arguments of both, also within a list of edits. They have
// the same effect, but different results (UNI-01, UNI-04, UNI-05).
func TestBothFamilies(t *testing.T) {
	t.Parallel()
	const before = "one\ntwo\nthree\ntwo\n"
	edits := []any{map[string]any{"old_text": "one", "new_string": "1"}, map[string]any{"old_string": "three", "new_text": ""}}
	for name, c := range map[string]struct {
		tool  string
		args  map[string]any
		text  string // part of the result
		after string
	}{
		"read by offset":            {"file_read", map[string]any{"offset": 2, "limit": 2}, "     2|two\n     3|three\n", before},
		"read by start and limit":   {"file_read", map[string]any{"start_line": 3, "limit": 1 << 60}, "     3|three\n     4|two\n", before},
		"read by limit":             {"file_read", map[string]any{"limit": "1"}, "     1|one\n", before},
		"read by lines":             {"read_file", map[string]any{"start_line": 2, "end_line": 3}, "   2 | two\n   3 | three\n", before},
		"read by start and limit 2": {"read_file", map[string]any{"start_line": 2, "limit": 1}, "   2 | two\n", before},
		"read the last":             {"read_file", map[string]any{"tail_lines": 1}, "   4 | two\n", before},
		"read few characters":       {"read_file", map[string]any{"max_chars": 12}, "   1 | one\n", before},

		"edit by text":     {"file_edit", map[string]any{"old_text": "one", "new_text": "1"}, "", "1\ntwo\nthree\ntwo\n"},
		"edit by both":     {"file_edit", map[string]any{"old_text": "one", "new_string": "1"}, "", "1\ntwo\nthree\ntwo\n"},
		"edits":            {"file_edit", map[string]any{"edits": edits}, "", "1\ntwo\n\ntwo\n"},
		"edit by string":   {"edit_file", map[string]any{"old_string": "one", "new_string": "1\n1"}, "replaced 1 line by 2 lines in a.txt", "1\n1\ntwo\nthree\ntwo\n"},
		"edit all":         {"edit_file", map[string]any{"old_text": "two\n", "new_text": "", "replace_all": true}, "replaced 2 lines by 0 lines in a.txt", "one\nthree\n"},
		"edits in lines":   {"edit_file", map[string]any{"edits": edits}, "replaced 2 lines by 1 line in a.txt", "1\ntwo\n\ntwo\n"},
		"edit to see":      {"edit_file", map[string]any{"old_text": "one", "new_text": "1", "dry_run": true}, "would replace 1 line by 1 line in a.txt", before},
		"write at the end": {"write_file", map[string]any{"content": "four\n", "mode": "append"}, "", before + "four\n"},
		"write to see":     {"write_file", map[string]any{"content": "x", "dry_run": true}, "", before},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, call := setup(t, map[string]string{"a.txt": before})
			c.args["path"] = "a.txt"
			e, got := call(c.tool, c.args)
			text, _ := got["text"].(string)
			if !e.OK || !strings.Contains(text, c.text) || c.text != "" && strings.Count(text, "|") > strings.Count(c.text, "|") {
				t.Errorf("%+v %q, want %q", e, text, c.text)
			}
			if now, err := os.ReadFile(filepath.Join(dir, "a.txt")); err != nil || string(now) != c.after {
				t.Errorf("the file holds %q, want %q (%v)", now, c.after, err)
			}
		})
	}

	_, call := setup(t, map[string]string{"a.txt": before})
	for name, c := range map[string]struct {
		tool string
		args map[string]any
		say  string
	}{
		"one argument twice":   {"file_edit", map[string]any{"old_text": "one", "old_string": "two", "new_string": "x"}, `there is no argument "old_text"`},
		"two beginnings":       {"read_file", map[string]any{"offset": 1, "start_line": 2}, "give one of them"},
		"two ends":             {"file_read", map[string]any{"limit": 1, "end_line": 2}, "end_line or limit"},
		"a limit from the end": {"file_read", map[string]any{"limit": 1, "tail_lines": 2}, "not both"},
		"a limit below 1":      {"read_file", map[string]any{"limit": -1}, "limit is 1 or more"},
		"an edit beside edits": {"edit_file", map[string]any{"old_text": "one", "edits": edits}, "give old_text and new_text, or edits"},
		"a mode that is not":   {"write_file", map[string]any{"content": "x", "mode": "twice"}, "mode"},
		"a name of no family":  {"file_edit", map[string]any{"old": "one", "new_text": "x"}, `there is no argument "old"`},
	} {
		c.args["path"] = "a.txt"
		if e, _ := call(c.tool, c.args); e.OK || !strings.Contains(e.Message, c.say) {
			t.Errorf("%s: %+v, want %s", name, e, c.say)
		}
	}

	// The same rules check a configuration.
	for _, s := range file.Specs() {
		if s.Name != "file_edit" {
			continue
		}
		a, err := s.Arguments()
		if err != nil {
			t.Fatal(err)
		}
		if wrong := a.Check(map[string]any{"path": "a", "edits": []any{map[string]any{"old_text": tool.Unknown{}, "new_string": "x"}}}); len(wrong) > 0 {
			t.Errorf("%+v", wrong)
		}
	}
}
