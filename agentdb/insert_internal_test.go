package agentdb

import (
	"encoding/json"
	"testing"
)

// A result that writes itself says what encoding/json would say.
func TestEncodeInserted(t *testing.T) {
	for _, i := range []Inserted{
		{},
		{IDs: []any{}},
		{IDs: []any{int64(-1), int64(1 << 62)}, Count: 2},
		{IDs: []any{"a<b>", 1.5, nil, []byte("x"), []any{int64(1), "two"}}, Count: 5, Warnings: []string{`{"ids":null`}},
	} {
		want, err := json.Marshal(i)
		if err != nil {
			t.Fatal(err)
		}
		got, err := i.encode()
		if err != nil || string(got) != string(want) {
			t.Errorf("%s, want %s (%v)", got, want, err)
		}
	}

	if _, err := (Inserted{IDs: []any{func() {}}}).encode(); err == nil {
		t.Error("an id without a JSON form has no error")
	}
}
