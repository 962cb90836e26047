package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	contractRow = regexp.MustCompile(`^\| ((?:OSA|AYA|YOA|OSL|AUT|AGS|UNI|C)-\d+) \| .* \| ([^|]*) \| ([^|]*) \| (built|part|not yet)[^|]*\|$`)
	contractID  = regexp.MustCompile(`\b(?:OSA|AYA|YOA|OSL|AUT|AGS|UNI)-\d{2}\b|\bC-\d{1,2}\b`)
	testName    = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9_]*)`")
)

// sources returns the text of every tracked or new Go file by its path, docs/contracts_test.go itself excluded.
func sources(t *testing.T) map[string]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "-C", "../..", "ls-files", "-co", "--exclude-standard", "*.go").Output()
	if err != nil {
		t.Skip("not a git checkout: the project's own files cannot be listed")
	}

	files := map[string]string{}
	for name := range strings.FieldsSeq(string(out)) {
		if strings.HasSuffix(name, "contracts_test.go") {
			continue
		}

		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			continue // deleted but still in the index
		}
		files[name] = string(text)
	}

	return files
}

// TestContracts checks docs/contracts.md: every contract id in the code has one row, and every row marked built or part
// names existing tests that mention the id.
func TestContracts(t *testing.T) {
	unraced(t)
	t.Parallel()
	doc, err := os.ReadFile("../../docs/contracts.md")
	if err != nil {
		t.Fatal(err)
	}

	files := sources(t)
	known := map[string]bool{}
	for line := range strings.Lines(string(doc)) {
		line = strings.TrimSpace(line)
		m := contractRow.FindStringSubmatch(line)
		if m == nil {
			if strings.HasPrefix(line, "| OSA-") || strings.HasPrefix(line, "| C-") {
				t.Errorf("docs/contracts.md: row not understood: %s", line)
			}
			continue
		}

		id, tests, state := m[1], m[3], m[4]
		if known[id] {
			t.Errorf("docs/contracts.md: %s stands twice", id)
		}
		known[id] = true
		if state == "not yet" {
			continue
		}

		names := testName.FindAllStringSubmatch(tests, -1)
		if len(names) == 0 {
			t.Errorf("%s is marked %s but names no test", id, state)
		}

		for _, n := range names {
			if !testSays(files, n[1], id) {
				t.Errorf("%s is marked %s by %s, but no test of that name mentions %s", id, state, n[1], id)
			}
		}
	}

	for name, text := range files {
		for _, id := range contractID.FindAllString(text, -1) {
			if !known[id] {
				t.Errorf("%s names %s, which has no row in docs/contracts.md", name, id)
			}
		}
	}
}

// testSays reports whether a test function of that name exists whose comment or body names the id.
func testSays(files map[string]string, test, id string) bool {
	for name, text := range files {
		if !strings.HasSuffix(name, "_test.go") && !strings.HasSuffix(filepath.Dir(name), "test") {
			continue
		}

		at := strings.Index(text, "func "+test+"(")
		if at < 0 {
			continue
		}

		begin := strings.LastIndex(text[:at], "\n}\n") + 1
		end := strings.Index(text[at:], "\n}\n")
		if end < 0 {
			end = len(text) - at
		}
		if strings.Contains(text[begin:at+end], id) {
			return true
		}
	}
	return false
}

// TestSecurityTable keeps the table of docs/security.md true: each row names tests that exist, and every
// test that the page names does.
func TestSecurityTable(t *testing.T) {
	unraced(t)
	t.Parallel()
	doc, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}

	var code strings.Builder
	for name, text := range sources(t) {
		if strings.HasSuffix(name, "_test.go") {
			code.WriteString(text)
		}
	}

	rows, table := 0, false
	for line := range strings.Lines(string(doc)) {
		names := testName.FindAllStringSubmatch(line, -1)
		for _, n := range names {
			if !strings.Contains(code.String(), "func "+n[1]+"(") {
				t.Errorf("docs/security.md names %s, and there is no such test", n[1])
			}
		}

		table = strings.HasPrefix(line, "| asset |") || (table && strings.HasPrefix(line, "|"))
		if !table || strings.HasPrefix(line, "| asset |") || strings.HasPrefix(line, "|---") {
			continue
		}
		if rows++; len(names) == 0 {
			t.Errorf("docs/security.md: no test shows %s", strings.TrimSpace(line))
		}
	}

	if rows < 20 {
		t.Errorf("docs/security.md: the table has %d rows", rows)
	}
}
