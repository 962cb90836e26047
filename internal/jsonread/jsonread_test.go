package jsonread

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// typed has field types that encoding/json handles specially.
type typed struct {
	Text string
	N    int
	List []struct{ A, B *int }
	Raw  json.RawMessage
	Any  any
	Map  map[string]any
}

var texts = []string{
	"", " ", "{", "}", "null", "1", "-", "12 ", `"a"`, "[1,2", "{} x", "{}{}", "{}\n", "\n {} \t\r\n", "\u00a0{}", "{}\u00a0", "1 2", "truefalse",
	`{"text":"a","n":1}`, `{"TEXT":"\ud800\u0000","n":1.5}`, `{"n":"1","text":"after"}`, `{"text":1} x`, `{"list":[{"a":1},{"b":2}],"list":[{"b":3}]}`,
	`{"raw": {"a" : [1, 2]} ,"any":12345678901234567890,"map":{"a":1e400,"b":{}}}`, `{"text":"` + strings.Repeat("a", maxPooled) + `","n":7}`,
}

// Values and errors are the same as those of encoding/json, even if a parser is reused.
func FuzzUnmarshal(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}

	f.Fuzz(func(t *testing.T, text []byte) {
		for _, before := range append(texts, string(text)) {
			for _, into := range []func() any{func() any { return new(typed) }, func() any { return new(any) }, func() any { return new(string) }} {
				_, _ = Unmarshal([]byte(before), into()), UnmarshalNumbers([]byte(before), into())
				compare(t, text, into, Unmarshal, json.Unmarshal)
				compare(t, text, into, UnmarshalNumbers, freshNumbers)
			}
		}
	})
}

func compare(t *testing.T, text []byte, into func() any, read, fresh func([]byte, any) error) {
	t.Helper()
	got, want := into(), into()
	err, wanted := read(text, got), fresh(text, want)
	if (err == nil) != (wanted == nil) || err != nil && err.Error() != wanted.Error() {
		t.Fatalf("%q: %v, want %v", text, err, wanted)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%q: %+v, want %+v", text, got, want)
	}
}

// A parsed value does not refer to the parser's buffer.
func TestUnmarshalKeepsWhatItRead(t *testing.T) {
	t.Parallel()
	var first, second typed
	for text, v := range map[string]*typed{`{"raw":[1],"text":"a"}`: &first, `{"raw":[2],"text":"b"}`: &second} {
		if err := Unmarshal([]byte(text), v); err != nil {
			t.Fatal(err)
		}
	}

	if string(first.Raw)+first.Text != "[1]a" || string(second.Raw)+second.Text != "[2]b" {
		t.Errorf("%+v and %+v", first, second)
	}
}
