package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"rouse/agent/model"
)

// Difference is one difference from the record. Attempt and Step are 0 if they do not apply.
// Recorded and Now are excerpts, or "".
type Difference struct {
	Attempt  int    `json:"attempt,omitempty"`
	Step     int    `json:"step,omitempty"`
	What     string `json:"what"`
	Recorded string `json:"recorded"`
	Now      string `json:"now"`
}

// String returns the difference as a sentence.
func (d Difference) String() string {
	return fmt.Sprintf("%s: recorded was %s, now it is %s", d.What, quoteOrNothing(d.Recorded), quoteOrNothing(d.Now))
}

func quoteOrNothing(text string) string {
	if text == "" {
		return "nothing"
	}
	return fmt.Sprintf("%q", text)
}

// Patterns of texts with times, which may differ.
var (
	clockLines = regexp.MustCompile(`(?m)^This run started on .*\n(When a minute or more has passed, .*\n)?`)
	resultTime = regexp.MustCompile(`"now":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)",("ok":)`)
)

// timeless returns the text of a message without the timestamp of a result.
func timeless(m model.Message) string {
	if m.Role != model.RoleTool || !strings.Contains(m.Text, `"now":"`) {
		return m.Text
	}
	return resultTime.ReplaceAllString(m.Text, "$2")
}

// Compare returns the differences between a request and the recorded one. It ignores the settings
// of the model.
func Compare(recorded, now model.Request) []Difference {
	var out []Difference
	add := func(what, a, b string) {
		if a != b {
			a, b = ExcerptDifference(a, b)
			out = append(out, Difference{What: what, Recorded: a, Now: b})
		}
	}

	add("the system prompt", clockLines.ReplaceAllString(recorded.System, ""), clockLines.ReplaceAllString(now.System, ""))
	if recorded.NoTools != now.NoTools {
		out = append(out, Difference{What: "whether tools may be called", Recorded: describeNoTools(recorded.NoTools), Now: describeNoTools(now.NoTools)})
	}

	out = append(out, compareTools(recorded.Tools, now.Tools)...)
	n := min(len(recorded.Messages), len(now.Messages))
	for i := range n {
		a, b := recorded.Messages[i], now.Messages[i]
		what := fmt.Sprintf("message %d, %s", i+1, describe(a))
		// From here on the messages are shifted, so further differences would be noise.
		if a.Role != b.Role || a.Name != b.Name {
			out = append(out, Difference{What: what, Recorded: excerptOf(a), Now: excerptOf(b)})
			return out
		}

		add(what, timeless(a), timeless(b))
		add(what+", its calls", describeCalls(a), describeCalls(b))
	}

	switch {
	case len(recorded.Messages) > n:
		out = append(out, Difference{What: fmt.Sprintf("message %d, %s", n+1, describe(recorded.Messages[n])), Recorded: excerptOf(recorded.Messages[n])})
	case len(now.Messages) > n:
		out = append(out, Difference{What: fmt.Sprintf("message %d, %s", n+1, describe(now.Messages[n])), Now: excerptOf(now.Messages[n])})
	}

	return out
}

func describeNoTools(noTools bool) string {
	if noTools {
		return "text alone"
	}
	return "tools or text"
}

// compareTools compares tools by name, regardless of their order.
func compareTools(recorded, now []model.Tool) (out []Difference) {
	find := func(list []model.Tool, name string) (model.Tool, bool) {
		for _, t := range list {
			if t.Name == name {
				return t, true
			}
		}
		return model.Tool{}, false
	}

	for _, a := range recorded {
		b, ok := find(now, a.Name)
		switch {
		case !ok:
			out = append(out, Difference{What: "the tool " + a.Name, Recorded: "offered"})
		case a.Description != b.Description:
			x, y := ExcerptDifference(a.Description, b.Description)
			out = append(out, Difference{What: "the tool " + a.Name + ", its description", Recorded: x, Now: y})
		case !SameJSON(a.Schema, b.Schema):
			x, y := ExcerptDifference(string(a.Schema), string(b.Schema))
			out = append(out, Difference{What: "the tool " + a.Name + ", its arguments", Recorded: x, Now: y})
		}
	}

	for _, b := range now {
		if _, ok := find(recorded, b.Name); !ok {
			out = append(out, Difference{What: "the tool " + b.Name, Now: "offered"})
		}
	}

	return out
}

func describe(m model.Message) string {
	switch m.Role {
	case model.RoleTool:
		return "the result of " + m.Name
	case model.RoleAssistant:
		return "an answer of the model"
	case model.RoleUser:
		return "what the model is told"
	}
	return string(m.Role)
}

func excerptOf(m model.Message) string {
	return excerptFrom(strings.TrimSpace(m.Text+" "+describeCalls(m)), 0)
}

func describeCalls(m model.Message) string {
	var out []string
	for _, c := range m.Calls {
		out = append(out, c.Name+" "+canonicalJSON(c.Args))
	}
	return strings.Join(out, ", ")
}

func canonicalJSON(raw json.RawMessage) string {
	var v any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if dec.Decode(&v) != nil {
		return string(raw)
	}

	text, err := json.Marshal(v)
	if err != nil {
		return string(raw)
	}

	return string(text)
}

// SameJSON reports whether two JSON documents are equal, regardless of white space and key order.
func SameJSON(a, b json.RawMessage) bool {
	return bytes.Equal(a, b) || canonicalJSON(a) == canonicalJSON(b)
}

// Sizes of excerpts in bytes: before the difference, and in total.
const (
	excerptBefore = 40
	excerptLen    = 160
)

// ExcerptDifference shortens two texts to the part around their first difference.
func ExcerptDifference(a, b string) (string, string) {
	at := 0
	for at < len(a) && at < len(b) && a[at] == b[at] {
		at++
	}

	from := 0
	if len(a) > excerptLen || len(b) > excerptLen {
		from = max(0, at-excerptBefore)
	}
	return excerptFrom(a, from), excerptFrom(b, from)
}

// excerptFrom returns an excerpt that starts and ends between characters, with dots for omitted
// text.
func excerptFrom(text string, from int) string {
	from = min(from, len(text))
	for from > 0 && from < len(text) && !utf8.RuneStart(text[from]) {
		from--
	}

	to := min(len(text), from+excerptLen)
	for to < len(text) && !utf8.RuneStart(text[to]) {
		to++
	}

	out := text[from:to]
	if from > 0 {
		out = "…" + out
	}

	if to < len(text) {
		out += "…"
	}

	return out
}
