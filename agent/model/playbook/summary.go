package playbook

import (
	"fmt"
	"strings"

	"rouse/internal/text"
)

const (
	maxDetail  = 60   // characters of a call's detail in a summary
	maxSummary = 2000 // characters of a summary
)

// tally counts what happened to one entry of the playbook.
type tally struct {
	name                  string
	made, skipped, failed int
	detail                string // of the last call that was made
	kind                  string // of the last failure
}

// summary says what a playbook did, in the order of its calls.
func summary(all []tally) string {
	var out []string
	for _, t := range all {
		out = append(out, t.String())
	}
	return text.Truncate(strings.Join(out, "; "), maxSummary)
}

func (t tally) String() string {
	var out string
	switch n := t.made + t.failed + t.skipped; {
	case n == 0:
		return t.name + " had no items"
	case n == 1 && t.made == 1:
		return t.name + t.detail
	case n == 1 && t.skipped == 1:
		return t.name + " skipped"
	case n == 1:
		return fmt.Sprintf("%s failed (%s) and was passed over", t.name, t.kind)
	case t.made == 1:
		out = " once" + t.detail
	case t.made > 1:
		out = fmt.Sprintf(" %d times", t.made)
	}

	if t.failed > 0 {
		out += fmt.Sprintf(", %d failed (%s)", t.failed, t.kind)
	}

	if t.skipped > 0 {
		out += fmt.Sprintf(", %d skipped", t.skipped)
	}

	if t.made == 0 {
		out = ":" + strings.TrimPrefix(out, ",")
	}

	return t.name + out
}

// describeResult says in a few words what a result is, by the keys that the tools of rouse use.
func describeResult(result any) string {
	m, ok := result.(map[string]any)
	if !ok {
		return ""
	}
	if n, ok := m["rows_imported"]; ok {
		return ": " + countRows(n) + " into " + show(m["table"])
	}
	if items, ok := m["rows"].([]any); ok {
		return ": " + countRows(len(items))
	}

	if n, ok := m["count"]; ok {
		return ": " + countRows(n)
	}

	for _, key := range []string{"title", "path", "text", "id"} {
		if v, ok := m[key]; ok {
			return ": " + text.Truncate(text.Collapse(show(v)), maxDetail)
		}
	}

	return ""
}

func countRows(n any) string {
	if text := show(n); text != "1" {
		return text + " rows"
	}
	return "1 row"
}
