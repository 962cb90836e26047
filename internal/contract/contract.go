// Package contract provides the rows of docs/dev/contracts.md to tests, so that each test uses the
// literals that its row quotes.
package contract

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A Row is one contract. Its literals are the texts in backticks in its second column.
type Row struct {
	ID       string
	Contract string
	Packages string
	Tests    string
	State    string
	Literals []string

	t    testing.TB
	mu   sync.Mutex // for parallel subtests
	used map[string]bool
}

// Of returns the row with this id. The test fails if the row does not exist, or if the test does
// not use every literal of the row.
func Of(t testing.TB, id string) *Row {
	t.Helper()
	for _, row := range All(t) {
		if row.ID != id {
			continue
		}

		row.t, row.used = t, map[string]bool{}
		t.Cleanup(row.unused)
		return row
	}
	t.Fatalf("docs/dev/contracts.md has no row %s", id)
	return nil
}

// Quote returns literal. The test fails if the row does not quote it.
func (r *Row) Quote(literal string) string {
	r.t.Helper()
	if slices.Contains(r.Literals, literal) {
		r.use(literal)
		return literal
	}
	r.t.Errorf("docs/dev/contracts.md: %s does not quote `%s`", r.ID, literal)
	return literal
}

// Number returns the number in a literal such as `8,000`. The test fails if the row does not quote
// it.
func (r *Row) Number(literal string) int {
	r.t.Helper()
	n, err := strconv.Atoi(strings.ReplaceAll(r.Quote(literal), ",", ""))
	if err != nil {
		r.t.Fatalf("docs/dev/contracts.md: %s: `%s` is not a number", r.ID, literal)
	}
	return n
}

// Between returns the literals between the texts after and before, for example the items of a list.
func (r *Row) Between(after, before string) []string {
	r.t.Helper()
	_, rest, found := strings.Cut(r.Contract, after)
	list, _, ended := strings.Cut(rest, before)
	quoted := literals(list)
	if !found || !ended || len(quoted) == 0 {
		r.t.Fatalf("docs/dev/contracts.md: %s quotes nothing between %q and %q", r.ID, after, before)
	}
	r.use(quoted...)
	return quoted
}

func (r *Row) use(literals ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range literals {
		r.used[l] = true
	}
}

func (r *Row) unused() {
	if r.t.Failed() || r.t.Skipped() {
		return
	}
	for _, l := range r.Literals {
		if !r.used[l] {
			r.t.Errorf("docs/dev/contracts.md: %s quotes `%s`, and its test does not use it", r.ID, l)
		}
	}
}

// All returns every row of docs/dev/contracts.md.
func All(t testing.TB) []*Row {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "docs", "dev", "contracts.md"))
	if err != nil {
		t.Fatal(err)
	}

	rowID := regexp.MustCompile(`^(?:OSA|AYA|YOA|OSL|AUT|AGS|UNI|C)-\d+$`)
	var rows []*Row
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.ReplaceAll(strings.TrimSpace(line), `\|`, "\x00"), "|")
		for i := range cells {
			cells[i] = strings.ReplaceAll(strings.TrimSpace(cells[i]), "\x00", "|")
		}
		if len(cells) < 2 || !rowID.MatchString(cells[1]) {
			continue
		}
		if len(cells) != 7 {
			t.Fatalf("docs/dev/contracts.md: %s has %d columns, not 5; write a vertical bar as \\|", cells[1], len(cells)-2)
		}
		rows = append(rows, &Row{ID: cells[1], Contract: cells[2], Packages: cells[3], Tests: cells[4], State: cells[5], Literals: literals(cells[2])})
	}
	return rows
}

func literals(text string) []string {
	var found []string
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

// root returns the top folder of the repository. Every test runs inside it.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("the test does not run in the repository")
		}
	}
}
