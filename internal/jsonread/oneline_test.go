package jsonread_test

import (
	"encoding/json"
	"testing"

	"rouse/internal/jsonread"
)

func FuzzOneLine(f *testing.F) {
	f.Add(`{"a":"\u003c\\u003e\ud83d\ude00"}`)
	f.Fuzz(func(t *testing.T, document string) {
		plain := jsonread.OneLine(json.RawMessage(document))
		var before, after any
		if json.Unmarshal([]byte(document), &before) != nil {
			return
		}
		if err := json.Unmarshal([]byte(plain), &after); err != nil {
			t.Fatalf("%q became %q: %v", document, plain, err)
		}

		want, _ := json.Marshal(before)
		if got, _ := json.Marshal(after); string(got) != string(want) {
			t.Errorf("%q became %q", document, plain)
		}
	})
}
