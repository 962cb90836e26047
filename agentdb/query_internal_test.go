package agentdb

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

// The size of an answer is counted without writing it.
func TestJSONSize(t *testing.T) {
	t.Parallel()
	for _, v := range []string{`"`, `\`, "<", ">", "&", " ", "~", "\x7f", "\x1f", "\u2028", "\xff"} {
		want, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := jsonSize(v); err != nil || got != len(want) {
			t.Errorf("%d, %v for %s", got, err, want)
		}
	}

	rapid.Check(t, func(t *rapid.T) {
		v := rapid.OneOf(
			rapid.Custom(func(t *rapid.T) any { return rapid.String().Draw(t, "text") }),
			rapid.Custom(func(t *rapid.T) any { return string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) }),
			rapid.Custom(func(t *rapid.T) any { return rapid.Int64().Draw(t, "whole") }),
			rapid.Custom(func(t *rapid.T) any { return rapid.Float64().Draw(t, "real") }),
			rapid.Just[any](nil),
		).Draw(t, "value")

		want, err := json.Marshal(v)
		if err != nil {
			t.Skip("JSON has no form for it")
		}
		if got, err := jsonSize(v); err != nil || got != len(want) {
			t.Fatalf("%d, %v for %s", got, err, want)
		}
	})
}
