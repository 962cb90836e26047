package wire_test

import (
	"encoding/json"
	"testing"

	"rouse/agent/model/wire"
)

// FuzzUnmarshalString compares the result with encoding/json.
func FuzzUnmarshalString(f *testing.F) {
	for _, raw := range []string{`""`, `"a"`, `null`, `"\u00fc\n"`, `"ü"`, "\"\xff\"", "\"\ufffd\"", `"\\"`, `"\""`, `1`, `{}`, `"" `, `"a" `} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) || raw[0] != '"' && string(raw) != "null" {
			return
		}

		got, want := "before", "before"
		if err := wire.UnmarshalString(raw, &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s was read as %q, not %q", raw, got, want)
		}
	})
}
