package tool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rouse/agent/tool"
	"rouse/internal/domain"
)

// TestShorten checks that a result is cut to the given size at the end of a line or item, with a
// warning that describes how to get the rest (OSA-22).
func TestShorten(t *testing.T) {
	t.Parallel()
	lines, rows := "", "["
	for i := range 200 {
		lines += fmt.Sprintf("%6d|line \"%d\"\n", i+41, i+41)
		rows += fmt.Sprintf(`{"n":%d},`, i)
	}
	rows = strings.TrimSuffix(rows, ",") + "]"

	pages := tool.Spec{Name: "look", Paging: tool.Paging{Field: "text", Start: "start_line", Next: "next_start_line"}}
	query := tool.Spec{Name: "query", Paging: tool.Paging{Field: "rows", Start: "offset"}}
	for name, c := range map[string]struct {
		spec         tool.Spec
		args         string
		result       any
		want, warned string
	}{
		"lines":         {pages, `{}`, map[string]any{"text": lines, "truncated": false}, `"next_start_line":67`, "the first 26 lines of text are shown; call look again with start_line 67 to go on"},
		"lines, plain":  {tool.Spec{Name: "run"}, `{}`, map[string]any{"out": lines, "code": 3}, `"code":3`, "lines of out are shown; make a call that asks for less"},
		"rows":          {query, `{"offset":1000}`, map[string]any{"rows": json.RawMessage(rows), "truncated": false}, `"truncated":true`, "call query again with offset 1059 to go on"},
		"a long line":   {pages, `{}`, map[string]any{"text": strings.Repeat("é", 4000)}, "éé", "characters of text are shown; make a call that asks for less"},
		"another field": {pages, `{}`, map[string]any{"entries": json.RawMessage(rows)}, `[{"n":0},`, "items of entries are shown; make a call that asks for less"},
	} {
		raw, err := tool.Success(c.result, "mind the gap").MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}

		cut, ok := tool.Shorten(string(raw), c.spec, json.RawMessage(c.args), 800)
		var e tool.Envelope
		if err := json.Unmarshal([]byte(cut), &e); !ok || err != nil || len(cut) > 800 || len(cut) < 400 {
			t.Errorf("%s: %d bytes (%v): %s", name, len(cut), err, cut)
			continue
		}
		if !strings.Contains(string(e.Result), c.want) || len(e.Warnings) != 2 || !strings.Contains(e.Warnings[1], c.warned) {
			t.Errorf("%s: %q in %s, want %q and %q", name, e.Warnings, e.Result, c.want, c.warned)
		}
	}

	for name, whole := range map[string]string{"a failure": `{"ok":false,"kind":"rejected","message":"` + lines[:5] + `"}`, "a text": `{"ok":true,"result":"` + strings.Repeat("x", 3000) + `"}`, "nothing": "", "no room": `{"ok":true,"result":{"a":"` + strings.Repeat("x", 900) + `","b":"` + strings.Repeat("x", 900) + `"}}`} {
		if cut, ok := tool.Shorten(whole, pages, nil, 800); ok {
			t.Errorf("%s: %s", name, cut)
		}
	}
}

// TestShortenProperties checks that every shortened result is a valid envelope of the given size.
func TestShortenProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		result := map[string]any{"text": rapid.String().Draw(t, "text"), "list": rapid.SliceOf(rapid.String()).Draw(t, "list"), "n": 1}
		result["more"] = strings.Repeat(rapid.String().Draw(t, "more"), rapid.IntRange(0, 200).Draw(t, "times"))
		raw, err := tool.Success(result).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}

		most := rapid.IntRange(0, 3000).Draw(t, "most")
		cut, ok := tool.Shorten(string(raw), tool.Spec{Name: "t", Paging: tool.Paging{Field: "text", Start: "from", Next: "next"}}, json.RawMessage(`{"from":"x"}`), most)
		var e tool.Envelope
		if ok && (json.Unmarshal([]byte(cut), &e) != nil || !e.OK || len(e.Warnings) != 1 || len(cut) > most) {
			t.Fatalf("%d of at most %d bytes: %s", len(cut), most, cut)
		}
	})
}

// TestBrief checks that a brief tool has a one-sentence description and describes only the required
// arguments (OSA-21). An argument may have the name description.
func TestBrief(t *testing.T) {
	t.Parallel()
	type line struct {
		Text string `json:"text" jsonschema:"what it says"`
	}
	type args struct {
		Path        string `json:"path" jsonschema:"where it is"`
		Description string `json:"description,omitempty" jsonschema:"what it is"`
		Lines       []line `json:"lines,omitempty" jsonschema:"many"`
	}
	define := func(s tool.Spec) tool.Tool {
		s.Name, s.Effect, s.Class = "t", domain.EffectRead, tool.ClassOther
		d, err := tool.Define(s, func(context.Context, tool.Invocation, args) (tool.Envelope, error) { return tool.Success("x"), nil })
		if err != nil {
			t.Fatal(err)
		}
		return d
	}

	told := define(tool.Spec{Description: "Reads a\nfile (.xlsx, too). It does more:\nmuch."}).BriefForModel()
	if told.Description != "Reads a file (.xlsx, too)." {
		t.Errorf("%q", told.Description)
	}
	if got := string(told.Schema); strings.Count(got, "description") != 2 || !strings.Contains(got, `"path":{"description":"where it is","type":"string"}`) || !strings.Contains(got, `"description":{"type":"string"}`) {
		t.Errorf("%s", got)
	}
	if told := define(tool.Spec{Description: "Long.", Brief: "Short."}).BriefForModel(); told.Description != "Short." {
		t.Errorf("%q", told.Description)
	}
}
