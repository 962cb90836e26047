package playbook_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rouse/agent/model/playbook"
)

// stamp is a time as in the data of runs.
type stamp struct{ time.Time }

func (s stamp) String() string { return s.Format(time.RFC3339) }

var someday = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

func data() map[string]any {
	return map[string]any{
		"Job": "j", "n": int64(1234567), "f": 1234567.5, "none": nil, "empty": map[string]any{}, "at": someday, "stamp": stamp{someday},
		"rows": []any{map[string]any{"a": 1.5, "b": nil}}, "deep": map[string]any{"x": map[string]any{"y": "z", "w": true}},
		"File": struct{ Path, Name string }{"p", "n"},
	}
}

func TestExpand(t *testing.T) {
	for text, want := range map[string]string{
		"plain }} text":              "plain }} text",
		"{{ .n }} {{ .f }}":          "1234567 1234567.5", // people do not read 1.2345675e+06
		"{{ 1234567.5 }} {{ true }}": "1234567.5 true",
		"[{{ .none }}]":              "[]",
		"{{ .rows }} {{ .File }}":    `[{"a":1.5,"b":null}] {"Path":"p","Name":"n"}`,
		"{{ .at }} {{ .stamp }}":     "2026-11-21T08:00:00Z 2026-11-21T08:00:00Z",
		`{{ .stamp.Format "02.01." }}{{ if .stamp.IsZero }}never{{ end }}`:                "21.11.",
		`{{ range $i, $r := .rows }}{{ $i }}:{{ $r.a }}{{ else }}none{{ end }}`:           "0:1.5",
		`{{ with .deep.x }}{{ .y }}{{ else }}none{{ end }}{{ with .none }}{{ . }}{{end}}`: "z",
		`{{ $x := .Job }}{{ if eq $x "j" }}{{ $x | printf "%5s" }}{{ end }}`:              "    j",
		`{{ printf "%.2f %d%%" .f .n }} {{ print 1 2 }} {{ html "<" }}`:                   "1234567.50 1234567% 1 2 &lt;",
		`{{ len .rows }} {{ index .deep "x" "y" }} {{ slice .Job 0 1 }} {{ .deep.x.w }}`:  "1 z j true",
		"{{- /* a comment */ -}} a {{- \" b\" }}":                                         "a b",
	} {
		if got, err := playbook.Expand("x", text, data()); err != nil || got != want {
			t.Errorf("%s gives %q (%v), want %q", text, got, err, want)
		}
	}
}

// TestExpandErrors checks that an error names the template, the missing name and the existing
// names.
func TestExpandErrors(t *testing.T) {
	for text, want := range map[string]string{
		"{{ .Jop }}":                          `uses "Jop", which this run does not have; it has File, Job, at, deep, empty, f, n, none, rows, stamp`,
		"{{ .Jop.x.y }}":                      `uses "Jop", which this run does not have; it has File`,
		"{{ .deep.x.v }}":                     `uses "deep.x.v", but deep.x has only w, y`,
		"{{ .empty.v }}":                      `uses "empty.v", but empty is an empty object`,
		"{{ .none.v }}":                       `uses "none.v", but none has no value here`,
		"{{ .n.v }}":                          `uses "n.v", but n is 1234567, which has no parts`,
		"{{ .rows.v }}":                       `uses "rows.v", but rows is a list: take each of it with {{ range .rows }}, or one with {{ (index .rows 0).v }}`,
		"{{ .stamp.v }}":                      `uses "stamp.v", but stamp is 2026-11-21T08:00:00Z, which has no parts`,
		"{{ .File.Size }}":                    `uses "File.Size", but File has only Path, Name`,
		"{{ $.File.Size }}":                   `uses "File.Size", but File has only Path, Name`,
		"{{ $.Jop }}":                         `uses "Jop", which this run does not have; it has File`,
		"{{ len .deep.v }}":                   `uses "deep.v", but deep has only x`,
		"{{ .Jop | len }}":                    `uses "Jop", which this run does not have`,
		`{{ printf "%9999d" 1 }}`:             `cannot be filled: printf "%9999d" 1: the format "%9999d" has a width of more than 999`,
		`{{ printf "%*d" 9 1 }}`:              `has a width of more than 999`,
		"{{ range .rows }}{{ .c }}{{ end }}":  `uses "c", which is not there`,
		"{{ (index .rows 0).c }}":             `uses "c", which is not there`,
		"{{ (index .rows 3).a }}":             `cannot be filled: index .rows 3: index out of range: 3`,
		"{{ range 100000 }}{{ end }}":         "does too much",
		"{{ range 1000000000000 }}x{{ end }}": "does too much",
		`{{ $x := "ab" }}{{ range 50 }}{{ $x = print $x $x }}{{ end }}`: "does too much",
		"{{ nope }}":                       `is broken: title:1: function "nope" not defined`,
		"a\n{{ if }}":                      "is broken: title:2: missing value for if",
		"{{ .a ":                           "is broken: title:1: unclosed action",
		`{{ block "a" . }}{{ end }}`:       "uses define, block or template, which are not available",
		strings.Repeat("{{if 1}}", 20_000): "has more than 10000 actions",
	} {
		_, err := playbook.Expand("title", text, data())
		if err == nil || !strings.HasPrefix(err.Error(), "the template of title ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v\nwant %s", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "_show") {
			t.Errorf("%.80s: the error tells of the machinery: %v", text, err)
		}
	}
}

// TestInsertedTextIsVerbatim checks that inserted text is not changed or expanded.
func TestInsertedTextIsVerbatim(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`(\{\{|\}\}|= | \.Job |x)*`)).Draw(t, "text")
		got, err := playbook.Expand("x", "{{ .v }}|{{ .m.v }}", map[string]any{"v": text, "m": map[string]any{"v": text}, "Job": "secret"})
		if err != nil || got != text+"|"+text {
			t.Fatalf("%q became %q (%v)", text, got, err)
		}
	})
}

func FuzzExpand(f *testing.F) {
	for _, text := range []string{
		"{{ .Job }} {{ range $i, $r := .rows }}{{ . }}{{ end }}", "{{ with .deep.x }}{{ .y }}{{ else }}{{ end }}", `{{ printf "%5.2f" .f | html }}`,
		"{{ .stamp.Format \"2006\" }}", "{{ (index .rows 0).a }}", `{{ define "a" }}{{ end }}`, "{{ range 1000000 }}{{ end }}", "{{ break }}", "{{ .none.x }}", "{{ call .Job }}",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		broken := playbook.CheckTemplate("x", text)
		got, err := playbook.Expand("x", text, data())
		if broken != nil && (err == nil || err.Error() != broken.Error()) {
			t.Errorf("the check says %v, the run %v", broken, err)
		}
		if len(got) > 4<<20 {
			t.Errorf("%d bytes", len(got))
		}
		if err != nil && strings.Contains(err.Error(), "_show") {
			t.Errorf("the error tells of the machinery: %v", err)
		}
	})
}

func FuzzCheck(f *testing.F) {
	for _, text := range []string{"imported.rows > 0", "= 1 + 1", "= keys(a)[0].b?.c ?? 1", "let x = 1; x", "map(1..3, # * 2) | sum()", "{{ .a }}", "item['x'] in [1]"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		calls := []playbook.Call{{Name: "x", With: map[string]any{"a": text, "b": []any{"= " + text}}, If: text, Each: []any{text}, Save: text}}
		problems := playbook.Check(calls, nil)
		if _, err := playbook.New(playbook.Options{Calls: calls}); (err == nil) != (len(problems) == 0) {
			t.Errorf("the check finds %v, New %v", problems, err)
		}

		if len(problems) == 0 {
			calls[0].Save = ""
			play(t, calls, data(), ok(`{}`)) // must return
		}
	})
}

// TestTemplateNumbers checks that numbers are formatted for people, including computed numbers.
func TestTemplateNumbers(t *testing.T) {
	t.Parallel()
	tenth := 0.1
	got, err := playbook.Expand("t", "{{ .sum }} {{ .large }} {{ .whole }} {{ .third }}", map[string]any{"sum": tenth + 0.2, "large": 1234567.5, "whole": 2500000.0, "third": 1 / 3.0})
	if err != nil || got != "0.3 1234567.5 2500000 0.3333333333333333" {
		t.Errorf("%q, %v", got, err)
	}
}
