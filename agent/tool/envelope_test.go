package tool_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rouse/agent/model"
	"rouse/agent/tool"
)

// TestEnvelopeKeys checks that an envelope is encoded like a map: with sorted keys, and without
// escapes for HTML.
func TestEnvelopeKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "<b>&\u2028\"", "\xff"}))
		e := tool.Envelope{OK: rapid.Bool().Draw(t, "ok"), Tool: text.Draw(t, "tool")}
		if rapid.Bool().Draw(t, "seen") {
			e.Images = []model.Image{{Type: "image/png", Data: []byte{1, 2}}}
		}

		e.Result = json.RawMessage(rapid.SampledFrom([]string{"", `{}`, `{"a": "<ü>" , "b":[1, 2]}`, `null`}).Draw(t, "result"))
		e.Warnings = rapid.SliceOfN(text, 0, 2).Draw(t, "warnings")
		if !e.OK {
			e.Kind, e.Message, e.Retryable = tool.KindTimeout, text.Draw(t, "message"), rapid.Bool().Draw(t, "retryable")
			e.Field, e.Expected = text.Draw(t, "field"), text.Draw(t, "expected")
		}

		got, err := e.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}

		var all map[string]json.RawMessage
		if err := json.Unmarshal(got, &all); err != nil {
			t.Fatalf("%s: %v", got, err)
		}

		var want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(all); err != nil {
			t.Fatal(err)
		}
		if want := strings.TrimSuffix(want.String(), "\n"); string(got) != want {
			t.Errorf("wrote\n%s, not\n%s", got, want)
		}
	})
}

// TestEnvelopeDamaged checks that an invalid JSON result is an error and does not damage the
// record.
func TestEnvelopeDamaged(t *testing.T) {
	for _, result := range []string{`{"a":`, `x`, `{} {}`} {
		if got, err := (tool.Envelope{OK: true, Result: json.RawMessage(result)}).MarshalJSON(); err == nil {
			t.Errorf("%s was written as %s", result, got)
		}
	}
}

func BenchmarkEnvelope(b *testing.B) {
	e := tool.Success(strings.Repeat("blue, 3 pieces, 4.50 in stock\n", 34))
	e.Tool = "lookup"
	b.ReportAllocs()

	for b.Loop() {
		if _, err := e.MarshalJSON(); err != nil {
			b.Fatal(err)
		}
	}
}
