package playbook

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"rouse/internal/text"
)

const (
	maxDetail  = 60   // characters of a call's detail in a summary
	maxSummary = 2000 // characters of a summary

	rowsRejected = "rows_rejected" // number of rows in a result that were left out because they do not fit
)

type tally struct {
	name                  string
	made, skipped, failed int
	about                 string // subject of the last call: the tool or a program
	detail                string // result of the last successful call
	kind                  string // kind of the last failure
	failure               string // description of the last failure, if known
	leftOut               int64  // total of rows that the calls left out
}

func (t tally) begun() bool { return t.made+t.skipped+t.failed > 0 }

func summary(all []tally) string {
	var out []string
	for _, t := range all {
		out = append(out, t.String())
	}
	return text.Truncate(strings.Join(out, "; "), maxSummary)
}

func (t tally) String() string {
	detail := ""
	if t.detail != "" {
		detail = ": " + t.detail
	}

	var out string
	switch n := t.made + t.failed + t.skipped; {
	case n == 0:
		return t.name + " had no items"
	case n == 1 && t.made == 1:
		return t.about + detail
	case n == 1 && t.skipped == 1:
		return t.name + " skipped"
	case n == 1:
		return fmt.Sprintf("%s failed (%s) and was passed over", cmp.Or(t.failure, t.name), t.kind)
	case t.made == 1:
		out = " once" + detail
	case t.made > 1:
		out = fmt.Sprintf(" %d times", t.made)
	}

	if t.failed > 0 {
		out += fmt.Sprintf(", %d failed (%s)", t.failed, t.kind)
	}

	if t.leftOut > 0 && t.made > 1 { // the detail of a single call includes it
		out += fmt.Sprintf(", %s left out", countRows(t.leftOut))
	}

	if t.skipped > 0 {
		out += fmt.Sprintf(", %d skipped", t.skipped)
	}

	if t.made == 0 {
		out = ":" + strings.TrimPrefix(out, ",")
	}

	return t.name + out
}

// Describe returns a short description of a tool call for a summary, for example "db_query: 2
// rows".
func Describe(name string, result json.RawMessage, redact func(string) string) string {
	v, err := decode(result)
	if err != nil {
		return name
	}
	about, what := (&Provider{redact: redact}).describe(name, v)
	return tally{name: name, made: 1, about: about, detail: what}.String()
}

// describe returns a short description of a result, and its subject: the tool, or the program it
// ran.
func (p *Provider) describe(name string, result any) (about, what string) {
	m, ok := result.(map[string]any)
	if !ok {
		return name, ""
	}

	count := func(key, thing string) string {
		n, _ := m[key].(int64)
		return text.Plural(n, thing)
	}
	if code, ok := m["exit_code"]; ok && m["program"] != nil {
		return p.redact(show(m["program"])), "exit " + show(code) + ", " + count("lines", "line")
	}

	if n, ok := m["rows_imported"]; ok {
		what := countRows(n) + " into " + show(m["table"])
		if left, _ := m[rowsRejected].(int64); left > 0 {
			what += fmt.Sprintf(", %d left out", left)
		}
		return name, what
	}
	if items, ok := m["rows"].([]any); ok {
		return name, countRows(len(items))
	}

	if n, ok := m["count"]; ok {
		return name, countRows(n)
	}

	switch committed, ok := m["committed"].(bool); {
	case ok && committed:
		return name, count("files", "file") + " on " + text.Truncate(p.redact(show(m["branch"])), maxDetail)
	case ok:
		return name, "nothing to commit"
	}

	if status, ok := m["status"].(int64); ok && m["url"] != nil {
		return name, fmt.Sprintf("%d from %s", status, text.Truncate(p.redact(show(m["url"])), maxDetail))
	}

	for _, key := range []string{"title", "path", "text", "id"} {
		if v, ok := m[key]; ok {
			return name, text.Truncate(text.Collapse(p.redact(show(v))), maxDetail)
		}
	}

	return name, ""
}

func countRows(n any) string {
	if text := show(n); text != "1" {
		return text + " rows"
	}
	return "1 row"
}
