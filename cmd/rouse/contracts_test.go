package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
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

// TestContracts keeps docs/contracts.md true: an id named in code has one row; a row marked built or part names tests that
// exist and say the id, and has a change that breaks it, which one of them notices (go run ./.ci/mutate -contracts).
func TestContracts(t *testing.T) {
	unraced(t)
	t.Parallel()
	doc, err := os.ReadFile("../../docs/contracts.md")
	if err != nil {
		t.Fatal(err)
	}

	files := sources(t)
	changes := contractChanges(t)
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

		if len(changes[id]) == 0 {
			t.Errorf("%s is marked %s, but no change in .ci/mutate/contracts breaks it", id, state)
		}
		for _, c := range changes[id] {
			if test := c.Test[strings.LastIndex(c.Test, ".")+1:]; !strings.Contains(tests, "`"+test+"`") {
				t.Errorf("%s: the change %q is noticed by %s, which the row does not name", id, c.How, test)
			}
			if n := strings.Count(files[c.File], c.From); n != 1 {
				t.Errorf("%s: what the change %q replaces stands %d times in %s", id, c.How, n, c.File)
			}
		}
		delete(changes, id)
	}

	for id := range changes {
		t.Errorf("a change in .ci/mutate/contracts breaks %s, which has no row that is built in docs/contracts.md", id)
	}

	for name, text := range files {
		for _, id := range contractID.FindAllString(text, -1) {
			if !known[id] {
				t.Errorf("%s names %s, which has no row in docs/contracts.md", name, id)
			}
		}
	}
}

// contractChange is a change that breaks a contract, as .ci/mutate reads it.
type contractChange struct{ Contract, How, File, From, To, Test string }

func contractChanges(t *testing.T) map[string][]contractChange {
	t.Helper()
	paths, err := filepath.Glob("../../.ci/mutate/contracts/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no changes that break contracts: %v", err)
	}

	changes := map[string][]contractChange{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var these []contractChange
		if err := yaml.Load(text, &these, yaml.WithKnownFields()); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, c := range these {
			changes[c.Contract] = append(changes[c.Contract], c)
		}
	}
	return changes
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
