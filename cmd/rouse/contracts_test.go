package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"rouse/cmd/internal/endtoend"
	"rouse/internal/contract"
)

var (
	contractID = regexp.MustCompile(`\b(?:OSA|AYA|YOA|OSL|AUT|AGS|UNI)-\d{2}\b|\bC-\d{1,2}\b`)
	testName   = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9_]*)`")
	sourceName = regexp.MustCompile("`([a-z]+/[a-z_/]+\\.go)`")
)

// sources returns the text of every tracked or new Go file by its path, this file excluded.
func sources(t *testing.T) map[string]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "-C", "../..", "ls-files", "-co", "--exclude-standard", "*.go").Output()
	if err != nil {
		t.Skip("not a git checkout: the project's own files cannot be listed")
	}

	files := map[string]string{}
	for name := range strings.FieldsSeq(string(out)) {
		if name == "cmd/rouse/contracts_test.go" {
			continue
		}

		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			continue // deleted, but still in the index
		}
		files[name] = string(text)
	}

	return files
}

// TestContracts checks docs/dev/contracts.md: each row quotes literals, is built, and names the tests that run them; each
// contract id in the code has a row.
func TestContracts(t *testing.T) {
	endtoend.Unraced(t)
	t.Parallel()
	files := sources(t)
	known := map[string]bool{}
	for _, row := range contract.All(t) {
		if known[row.ID] {
			t.Errorf("docs/dev/contracts.md has two rows %s", row.ID)
		}
		known[row.ID] = true
		if !strings.HasPrefix(row.State, "built") {
			t.Errorf("docs/dev/contracts.md: %s is not built: %s", row.ID, row.State)
		}
		if len(row.Literals) == 0 {
			t.Errorf("docs/dev/contracts.md: %s quotes no literal", row.ID)
		}

		use, runs := fmt.Sprintf("contract.Of(t, %q)", row.ID), false
		for _, n := range testName.FindAllStringSubmatch(row.Tests, -1) {
			body, found := testBody(files, n[1])
			if !found {
				t.Errorf("docs/dev/contracts.md: %s names %s, which does not exist", row.ID, n[1])
			}
			runs = runs || strings.Contains(body, use)
		}
		if !runs {
			t.Errorf("docs/dev/contracts.md: no test that %s names calls %s", row.ID, use)
		}
	}

	for name, text := range files {
		for _, id := range contractID.FindAllString(text, -1) {
			if !known[id] {
				t.Errorf("%s names %s, which has no row in docs/dev/contracts.md", name, id)
			}
		}
	}
}

// testBody returns the text of every test function with this name.
func testBody(files map[string]string, test string) (string, bool) {
	var body strings.Builder
	for name, text := range files {
		if !strings.HasSuffix(name, "_test.go") && !strings.HasSuffix(filepath.Dir(name), "test") {
			continue
		}

		if _, after, found := strings.Cut(text, "func "+test+"("); found {
			own, _, _ := strings.Cut(after, "\n}\n")
			body.WriteString(own + "\n")
		}
	}
	return body.String(), body.Len() > 0
}

// TestSecurityTable keeps the tables of docs/dev/security-tests.md true: each row names tests, and every test
// and file that the page names exists.
func TestSecurityTable(t *testing.T) {
	endtoend.Unraced(t)
	t.Parallel()
	var code strings.Builder
	for name, text := range sources(t) {
		if strings.HasSuffix(name, "_test.go") {
			code.WriteString(text)
		}
	}

	const page = "docs/dev/security-tests.md"
	doc, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}

	rows, table := 0, false
	for line := range strings.Lines(string(doc)) {
		names := testName.FindAllStringSubmatch(line, -1)
		for _, n := range names {
			if !strings.Contains(code.String(), "func "+n[1]+"(") {
				t.Errorf("%s names %s, and there is no such test", page, n[1])
			}
		}

		head := strings.HasPrefix(line, "| asset |")
		table = head || (table && strings.HasPrefix(line, "|"))
		if !table || head || strings.HasPrefix(line, "|---") {
			continue
		}
		if rows++; len(names) == 0 {
			t.Errorf("%s: no test shows %s", page, strings.TrimSpace(line))
		}
		for _, n := range sourceName.FindAllStringSubmatch(line, -1) {
			if _, err := os.Stat("../../" + n[1]); err != nil {
				t.Errorf("%s names %s: %v", page, n[1], err)
			}
		}
	}

	if rows < 40 {
		t.Errorf("the tables have %d rows", rows)
	}
}
