package file_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/agent/tool"
)

// TestSince lists and finds files with their size and time, with and without since.
func TestSince(t *testing.T) {
	t.Parallel()
	dir, call := setup(t, map[string]string{"old.txt": "four", "new.txt": "x", "sub/new.csv": "12", "sub/deep/new.md": "x", "sub/old.csv": "x"})
	at := time.Now().Add(-48 * time.Hour).Truncate(time.Second).UTC()
	for _, name := range []string{"old.txt", "sub/old.csv"} {
		if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	names := func(items any) string {
		var out []string
		for _, it := range items.([]any) {
			m := it.(map[string]any)
			if m["type"] != "directory" && (m["size"] == nil || m["modified"] == nil) {
				t.Errorf("no size or time: %v", m)
			}
			if m["path"] == "old.txt" && (m["size"] != 4.0 || m["modified"] != at.Format(time.RFC3339)) {
				t.Errorf("%v, want 4 bytes of %s", m, at)
			}
			out = append(out, m["path"].(string))
		}
		return strings.Join(out, " ")
	}

	all, recent := "sub new.txt old.txt sub/deep sub/new.csv sub/old.csv sub/deep/new.md", "new.txt sub/new.csv sub/deep/new.md"
	for since, c := range map[string]struct{ listed, found, content string }{
		"":    {all, "new.txt old.txt sub/deep/new.md sub/new.csv sub/old.csv", "new.txt sub/deep/new.md sub/old.csv"},
		"24h": {recent, "new.txt sub/deep/new.md sub/new.csv", "new.txt sub/deep/new.md"},
		"-1d": {recent, "new.txt sub/deep/new.md sub/new.csv", "new.txt sub/deep/new.md"},
		"3d":  {"new.txt old.txt sub/new.csv sub/old.csv sub/deep/new.md", "new.txt old.txt sub/deep/new.md sub/new.csv sub/old.csv", "new.txt sub/deep/new.md sub/old.csv"},
		// Values of {{ .LastSuccess }} before and after the first success.
		"0001-01-01T00:00:00.000Z":                             {all, "new.txt old.txt sub/deep/new.md sub/new.csv sub/old.csv", "new.txt sub/deep/new.md sub/old.csv"},
		at.Add(time.Second).Format("2006-01-02T15:04:05.000Z"): {recent, "new.txt sub/deep/new.md sub/new.csv", "new.txt sub/deep/new.md"},
	} {
		e, got := call("file_read", map[string]any{"path": ".", "since": since})
		if !e.OK || names(got["entries"]) != c.listed {
			t.Errorf("since %q: %+v %s, want %s", since, e.Message, names(got["entries"]), c.listed)
		}
		e, got = call("file_search", map[string]any{"pattern": "**", "target": "files", "since": since})
		if !e.OK || names(got["matches"]) != c.found {
			t.Errorf("since %q: %+v %s, want %s", since, e.Message, names(got["matches"]), c.found)
		}
		e, got = call("file_search", map[string]any{"pattern": "x", "since": since})
		if paths := strings.ReplaceAll(strings.ReplaceAll(formatMatches(got), ":1:x", ""), "|", " "); !e.OK || paths != c.content {
			t.Errorf("since %q: %+v %s, want %s", since, e.Message, paths, c.content)
		}
	}

	if e, _ := call("file_search", map[string]any{"pattern": "x", "since": "lately"}); e.OK || e.Kind != tool.KindInvalidArgs {
		t.Errorf("%+v", e)
	}
	if e, _ := call("file_read", map[string]any{"path": ".", "since": "lately"}); e.OK || e.Kind != tool.KindInvalidArgs {
		t.Errorf("%+v", e)
	}
}

// TestSinceOfManyFiles finds the new files of a folder with more files than a listing shows.
func TestSinceOfManyFiles(t *testing.T) {
	t.Parallel()
	many := map[string]string{"z-new.txt": "new", "sub/z-new.txt": "new"}
	for i := range 400 {
		many["f"+strings.Repeat("x", i%7)+string(rune('a'+i%26))+time.Duration(i).String()] = "old"
		many["sub/"+time.Duration(i).String()] = "old"
	}
	dir, call := setup(t, many)
	at := time.Now().Add(-48 * time.Hour)
	for name := range many {
		if !strings.HasSuffix(name, "z-new.txt") {
			if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	e, got := call("file_read", map[string]any{"path": ".", "since": "1h"})
	if !e.OK || len(got["entries"].([]any)) != 2 || got["truncated"] != false {
		t.Errorf("%+v %v", e, got)
	}
}
