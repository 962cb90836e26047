package file_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/redact"
	"rouse/agent/tool"
	"rouse/agent/tool/file"
)

// TestCutsAreRedacted checks that at most a few characters of a secret remain at a cut, for every
// cut and every encoding of the secret. Secrets are redacted before the cut.
func TestCutsAreRedacted(t *testing.T) {
	t.Parallel()
	const secret = `open-SESAME<7f3e>"now`
	hide := redact.New([]string{secret, "Invoice 2026-114"})
	dir := t.TempDir()
	b := newBench(t, dir)
	in := b.start(t)
	roots, err := tool.NewRoots(dir, nil)
	if err != nil {
		t.Fatal(err)
	}

	call := func(whole bool, name string, args map[string]any) string {
		t.Helper()
		tools, err := file.Tools(file.Options{Roots: roots, Log: b.ledger.FileOps, Artifacts: b.ledger.Artifacts, Redact: hide.Replace, RedactReads: whole, Viewer: viewer, Allow: []string{"*_file", "file_*", "search"}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := tool.NewRegistry(tools...)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		e, err := r.Call(t.Context(), in, name, raw)
		if err != nil {
			t.Fatal(err)
		}
		return string(hide.JSON(e.Result)) + hide.Replace(e.Message)
	}
	check := func(what, told string) {
		t.Helper()
		for i := 0; i+6 <= len(secret); i++ {
			if strings.Contains(told, secret[i:i+6]) || strings.Contains(told, "Invoice 2026"[:9]) {
				t.Errorf("%s: %q is told in %.300q", what, secret[i:i+6], told)
			}
		}
	}

	for form, written := range map[string]string{"plain": secret, "html": "open-SESAME&lt;7f3e&gt;&quot;now", "json": `open-SESAME\u003c7f3e\u003e\"now`} {
		path := filepath.Join(dir, form+".txt")
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}

		for most := 8; most < 8+len(written)+10; most++ {
			write("xx" + written + strings.Repeat("y", 100))
			for _, whole := range []bool{true, false} {
				check(form+" read", call(whole, "file_read", map[string]any{"path": form + ".txt", "max_chars": most}))
			}
		}

		for before := 470; before <= 500; before += 2 { // cut of a line of a search
			line := "find " + strings.Repeat("x", before-5-len(written)/2) + written + strings.Repeat("y", 10_000)
			write(line + "\n")
			check(form+" search", call(true, "file_search", map[string]any{"pattern": "find", "path": form + ".txt"}))
			check(form+" search", call(false, "search", map[string]any{"pattern": "find", "path": form + ".txt"}))
		}

		for before := 180; before <= 205; before += 2 { // cut of a line of a diagnosis
			write("first " + strings.Repeat("x", before-6-len(written)/2) + written + strings.Repeat("y", 1000) + "\nsecond\n")
			check(form+" edit", call(true, "file_edit", map[string]any{"path": form + ".txt", "old_text": "first  other", "new_text": "x"}))
			check(form+" edit", call(true, "file_edit", map[string]any{"path": form + ".txt", "old_text": "second", "new_text": "third", "dry_run": true}))
		}
	}

	pdf, err := os.ReadFile("testdata/invoice.pdf")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "a.pdf"), pdf, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for most := 10; most < 30; most += 3 {
		check("pdf", call(true, "file_read", map[string]any{"path": "a.pdf", "max_chars": most}))
	}
}
