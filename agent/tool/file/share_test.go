package file_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/internal/contract"
)

// held returns the stored artifact of a call.
func (b *bench) held(t *testing.T, name string) string {
	t.Helper()
	all, err := b.ledger.Artifacts.List(t.Context(), b.last)
	if err != nil {
		t.Fatal(err)
	}

	for i := range all {
		if a := all[len(all)-1-i]; a.Name == name {
			_, content, err := b.ledger.Artifacts.Bytes(t.Context(), b.last, a.ID)
			if err != nil {
				t.Fatal(err)
			}
			return string(content)
		}
	}

	return "none"
}

// TestShare checks that a copy is stored as the next version of its name. Invalid calls are refused
// with a hint (OSA-19, UNI-12).
func TestShare(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"a.txt": "one\n", "sub/report.md": "x", "bin": "a\x00\xff", ".env": "canary", "large": strings.Repeat("x", 32<<20+1)} {
		path := filepath.Join(dir, "w", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.Mkdir(filepath.Join(dir, "w", "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "outside"), []byte("canary"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "outside"), filepath.Join(dir, "w", "link")); err != nil {
		t.Skip("no links here:", err)
	}

	row, share := contract.Of(t, "UNI-12"), contract.Of(t, "OSA-19")
	q, invalid := share.Quote, tool.Kind(share.Quote("invalid_args"))
	b := newBench(t, filepath.Join(dir, "w"))
	call := b.run(t)
	for _, c := range []struct {
		args    map[string]any
		name    string
		version float64
		holds   string
	}{
		{map[string]any{"path": "a.txt"}, "a.txt", 1, "one\n"},
		{map[string]any{q("path"): "a.txt", q("filename"): "b.txt", q("description"): "a\ncopy"}, "b.txt", 1, "one\n"},
		{map[string]any{q("content"): "two\n", "filename": "a.txt"}, "a.txt", 2, "two\n"},
		{map[string]any{"content": `# A\n\tx`, "filename": "esc.md"}, "esc.md", 1, "# A\n\tx"},
		{map[string]any{"content": "print('\\n')\n", "filename": "code.py"}, "code.py", 1, "print('\\n')\n"},
		{map[string]any{"path": "bin"}, "bin", 1, "a\x00\xff"},
		{map[string]any{"path": "sub/report.md"}, "report.md", 1, "x"},
	} {
		e, got := call(row.Quote(q("share_artifact")), c.args)
		if !e.OK || got["filename"] != c.name || got[row.Quote("version")] != c.version || b.held(t, c.name) != c.holds {
			t.Errorf("%v: %+v %v, kept %q", c.args, e, got, b.held(t, c.name))
		}
	}

	for name, c := range map[string]struct {
		args  map[string]any
		kind  tool.Kind
		field string
		says  string
	}{
		"nothing":      {map[string]any{}, invalid, "path", "nothing to share"},
		"both":         {map[string]any{"path": "a.txt", "content": "x"}, tool.KindInvalidArgs, "content", "not both"},
		"a mark":       {map[string]any{"content": "x\n" + q("---SHARED_ARTIFACT_END---"), "filename": "x"}, tool.KindInvalidArgs, "content", "holds a mark"},
		"no name":      {map[string]any{"content": "x"}, tool.KindInvalidArgs, "filename", "needs a filename"},
		"an empty one": {map[string]any{"path": "empty"}, tool.KindInvalidArgs, "path", "holds no file"},
		"name up":      {map[string]any{"content": "x", "filename": "../a"}, tool.KindInvalidArgs, "filename", "without a folder"},
		"name odd":     {map[string]any{"content": "x", "filename": "a\x1bb"}, tool.KindInvalidArgs, "filename", "without a folder"},
		"name long":    {map[string]any{"content": "x", "filename": strings.Repeat("n", 201)}, tool.KindInvalidArgs, "filename", "200 bytes"},
		"traversal":    {map[string]any{"path": "../outside"}, tool.KindInvalidArgs, "path", filepath.Join(dir, "w")},
		"a link out":   {map[string]any{"path": "link"}, tool.KindInvalidArgs, "path", "leads out of"},
		"a secret one": {map[string]any{"path": ".env"}, tool.KindRejected, "path", "holds secrets"},
		"missing":      {map[string]any{"path": "report.md"}, tool.KindExecutionError, "path", filepath.Join("sub", "report.md")},
		"too large":    {map[string]any{"path": "large"}, tool.KindRejected, "", "can be shared as one"},
	} {
		e, _ := call("share_artifact", c.args)
		if text, err := json.Marshal(e); err != nil || e.OK || e.Kind != c.kind || e.Field != c.field || !strings.Contains(string(text), c.says) || strings.Contains(string(text), "canary") {
			t.Errorf("%s: %s", name, text)
		}
	}

	if all, err := b.ledger.Artifacts.List(t.Context(), b.last); err != nil || len(all) != 7 {
		t.Errorf("kept: %+v %v", all, err)
	}
}

// TestShareOnce checks that a call repeated after a crash does not share again, and that secrets
// are redacted (OSA-19).
func TestShareOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	in := b.start(t)
	in.Key = "k"
	roots, err := tool.NewRoots(b.dir, nil)
	if err != nil {
		t.Fatal(err)
	}

	tools, err := file.Tools(file.Options{Roots: roots, Log: b.ledger.FileOps, Artifacts: b.ledger.Artifacts, Redact: strings.NewReplacer("canary", "[secret]").Replace})
	if err != nil {
		t.Fatal(err)
	}

	r, err := tool.NewRegistry(tools...)
	if err != nil {
		t.Fatal(err)
	}

	var answers []string
	for range 2 {
		e, err := r.Call(t.Context(), in, "share_artifact", json.RawMessage(`{"content":"a canary\n","filename":"canary.txt","description":"of a canary"}`))
		if err != nil || !e.OK {
			t.Fatalf("%+v %v", e, err)
		}
		answers = append(answers, string(e.Result))
	}

	all, err := b.ledger.Artifacts.List(t.Context(), in.Run)
	if err != nil || len(all) != 1 || answers[0] != answers[1] || strings.Contains(answers[0], "canary") || all[0].Description != "of a [secret]" {
		t.Errorf("%q, kept %+v: %v", answers, all, err)
	}
	if got := b.held(t, "[secret].txt"); got != "a [secret]\n" {
		t.Errorf("kept %q", got)
	}
}
