package file_test

import (
	"archive/zip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rouse/agent/tool"
)

// unzipped returns the files of an archive with their contents.
func unzipped(t *testing.T, content string) (out []string) {
	t.Helper()
	r, err := zip.NewReader(strings.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.File {
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, f.Name+"="+string(text))
	}
	return out
}

// A folder is shared as one archive, identical for identical files, and as a version of its name.
// Links are not followed. Files with secrets are omitted and named. A folder that is too large is
// refused (OSA-19).
func TestShareFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("outside/secret", "canary")
	for name, text := range map[string]string{"index.html": "<h1>", "img/a.png": "\x89PNG\xff", "img/deep/b.txt": "b", ".nojekyll": "", ".env": "canary", ".git/config": "canary", "keys/server.pem": "canary"} {
		write("w/site/"+name, text)
	}
	for link, to := range map[string]string{"link": "../../outside/secret", "folder": "../../outside", "inner": "index.html"} {
		if err := os.Symlink(to, filepath.Join(dir, "w", "site", link)); err != nil {
			t.Skip("no links here:", err)
		}
	}

	b := newBench(t, filepath.Join(dir, "w"))
	call := b.run(t)
	want := []string{".nojekyll=", "img/a.png=\x89PNG\xff", "img/deep/b.txt=b", "index.html=<h1>"}
	for i, c := range []struct {
		args map[string]any
		name string
	}{
		{map[string]any{"path": "site"}, "site.zip"}, {map[string]any{"path": "site/"}, "site.zip"}, {map[string]any{"path": "./site/../site", "filename": "mine"}, "mine.zip"},
		{map[string]any{"path": filepath.Join(dir, "w", "site"), "filename": "mine.ZIP"}, "mine.ZIP"},
	} {
		e, got := call("share_artifact", c.args)
		if !e.OK || got["filename"] != c.name || i == 1 && got["version"] != 2.0 {
			t.Fatalf("%v: %+v %v", c.args, e, got)
		}
		if has := unzipped(t, b.held(t, c.name)); !slices.Equal(has, want) {
			t.Errorf("%v: it holds %q", c.args, has)
		}
		if said := fmt.Sprint(e.Warnings); !strings.Contains(said, ".env") || !strings.Contains(said, ".git") || !strings.Contains(said, "link") || !strings.Contains(said, "keys/server.pem") {
			t.Errorf("what is left out is not named: %s", said)
		}
	}

	e, got := call("share_artifact", map[string]any{"path": "."})
	if !e.OK || got["filename"] != "w.zip" || !strings.HasPrefix(unzipped(t, b.held(t, "w.zip"))[1], "site/img/a.png=") {
		t.Errorf("%+v %v", e, got)
	}
	all, err := b.ledger.Artifacts.List(t.Context(), b.last)
	if err != nil || all[0].Hash != all[1].Hash {
		t.Errorf("the same folder is not the same archive: %+v %v", all, err)
	}

	for i := range 2001 {
		write(fmt.Sprintf("w/many/%d", i), "x")
	}
	write("w/large/a", strings.Repeat("x", 20<<20))
	write("w/large/b", strings.Repeat("x", 20<<20))
	write("w/secrets/.env", "canary")
	for path, c := range map[string]struct {
		kind tool.Kind
		says string
	}{"many": {tool.KindRejected, "2000 files"}, "large": {tool.KindRejected, "can be shared as one folder"}, "secrets": {tool.KindInvalidArgs, "no file that can be shared"}, "../outside": {tool.KindInvalidArgs, filepath.Join(dir, "w")}, "site/folder": {tool.KindInvalidArgs, "leads out of"}} {
		if e, _ := call("share_artifact", map[string]any{"path": path}); e.OK || e.Kind != c.kind || !strings.Contains(e.Message, c.says) {
			t.Errorf("%s: %+v", path, e)
		}
	}
}
