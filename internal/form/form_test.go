package form_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"rouse/internal/form"
)

const trip = `{"type": "object", "required": ["city", "nights", "address"], "additionalProperties": false, "properties": {
	"city": {"type": "string", "title": "City", "minLength": 2},
	"nights": {"type": "integer", "minimum": 1, "default": 2},
	"class": {"type": "string", "enum": ["first", "second"]},
	"price": {"type": "number"},
	"pets": {"type": "boolean"},
	"guests": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
	"address": {"type": "object", "required": ["street"], "properties": {"street": {"type": "string"}, "floor": {"type": "integer"}}}}}`

func parse(t *testing.T, schema string) *form.Form {
	t.Helper()
	f, err := form.Parse(json.RawMessage(schema))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFields(t *testing.T) {
	t.Parallel()
	var got []string
	for _, f := range parse(t, trip).Fields() {
		got = append(got, fmt.Sprintf("%s/%s/%t/%d/%s", f.Name(), f.Kind, f.Required, len(f.Enum), f.Default))
	}
	want := "city/text/true/0/ nights/whole number/true/0/2 class/text/false/2/ price/number/false/0/ pets/yes or no/false/0/ " +
		"guests/list/false/0/ address.street/text/true/0/ address.floor/whole number/false/0/"
	if text := strings.Join(got, " "); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

// TestCheck: each invalid field is named, and equal answers have equal bytes (OSL-31, UNI-09).
func TestCheck(t *testing.T) {
	t.Parallel()
	f := parse(t, trip)
	for answer, want := range map[string]string{
		`{"nights": 3, "city": "Rome", "address": {"street": "Via"}}`: "",
		`{"city": "Rome"}`:                          "nights: it is missing; address.street: it is missing",
		`{"city": "R", "nights": 0, "address": {}}`: "city: minLength; nights: minimum; address.street: it is missing",
		`{"city": 5, "nights": "x", "address": {"street": "Via", "floor": 1.5}}`:        "city: it has to be a text; nights: it has to be a whole number; address.floor: it has to be a whole number",
		`{"city": "Rome", "nights": 1, "address": {"street": "Via"}, "class": "third"}`: "class: it has to be one of first, second",
		`{"city": "Rome", "nights": 1, "address": {"street": "Via"}, "pets": "yes"}`:    "pets: it has to be yes or no (true or false)",
		`{"city": "Rome", "nights": 1, "address": {"street": "Via"}, "guests": [1]}`:    "guests: it has to be a list of texts",
		`{"city": "Rome", "nights": 1, "address": {"street": "Via"}, "cat": 1}`:         "unexpected additional properties",
		`[]`:   "type:",
		`{} 1`: "it is more than one JSON value",
		`Rome`: "it is no JSON",
	} {
		fitted, problems := f.Check(json.RawMessage(answer))
		var got []string
		for _, p := range problems {
			got = append(got, p.String())
		}

		parts := strings.Split(want, "; ")
		if want == "" {
			parts = nil
		}
		if len(got) != len(parts) || (len(problems) == 0) != (fitted != nil) {
			t.Errorf("%s: %q, want %q", answer, got, want)
			continue
		}
		for i := range parts {
			if !strings.HasPrefix(got[i], parts[i]) {
				t.Errorf("%s: %q, want %q", answer, got, want)
			}
		}
	}

	one, _ := f.Check(json.RawMessage(`{"nights":3,"city":"Rome","address":{"street":"Via"}}`))
	two, _ := f.Check(json.RawMessage(` { "city" : "Rome", "address":{"street":"Via"}, "nights": 3 }`))
	if string(one) != string(two) || one == nil {
		t.Errorf("the same answer is %s and %s", one, two)
	}
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	amount := `{"type": "object", "required": ["amount"], "properties": {"amount": {"type": "number"}, "note": {"type": "string"}}}`
	for _, c := range []struct{ schema, text, want string }{
		{amount, "12.50", `{"amount":12.50}`},
		{amount, `{"amount": 3}`, `{"amount": 3}`},
		{amount, "much", "it has to be a number"},
		{trip, "Rome", "it asks for city, nights, class, price, pets, guests, address.street, address.floor: answer with JSON such as"},
		{`{"type": "string"}`, "{no JSON}", `"{no JSON}"`},
		{`{"type": "string"}`, `"quoted"`, `"quoted"`},
		{`{"type": "string"}`, `"half`, `"\"half"`},
		{`{"type": "string", "enum": ["10", "20"]}`, "20", `"20"`},
		{`{"type": "string", "enum": ["red", "blue"]}`, "2", `"blue"`},
		{`{"type": "string", "enum": ["red", "blue"]}`, "green", "it has to be one of red, blue"},
		{`{"type": "boolean"}`, "Yes", `true`},
		{`{"type": "boolean"}`, "perhaps", "it has to be yes or no"},
		{`{"type": "array", "items": {"type": "string"}}`, "a, b ,", `["a","b"]`},
		{`{"type": "array", "items": {"type": "string"}}`, `["a, b"]`, `["a, b"]`},
		{`{"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"}`, "3", "3"},
		{`{"$schema": "http://json-schema.org/draft-07/schema#", "type": "integer"}`, "x", "it has to be a whole number"},
		{`{"type": "object", "properties": {"any": true}}`, `[1]`, `{"any":[1]}`},
		{`{"type": "array", "items": true}`, `[1]`, `[1]`},
		{`{"type": "integer"}`, "0x10", "it has to be a whole number"},
		{`{"type": "integer"}`, "NaN", "it has to be a whole number"},
		{`{"type": "array", "items": {"type": "integer"}}`, "[1,2]", `[1,2]`},
	} {
		got, err := parse(t, c.schema).Answer(c.text)
		text := string(got)
		if err != nil {
			text = err.Error()
		}
		if !strings.HasPrefix(text, c.want) || c.want == "" {
			t.Errorf("%s to %s: %s, want %s", c.text, c.schema, text, c.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{`:             "no JSON",
		`{"type": 5}`:   "not understood",
		`{"$ref": "#"}`: "$ref",
		`{"type": "object", "properties": {"a": {"items": {"$ref": "#"}}}}`: "$ref",
		`{"type": "string", "pattern": "("}`:                                "cannot be used",
		`"` + strings.Repeat("x", 17<<10) + `"`:                             "bytes",
	} {
		if _, err := form.Parse(json.RawMessage(schema)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", schema, err, want)
		}
	}
}

// FuzzForm: no schema or answer causes a panic, and a checked answer passes another check.
func FuzzForm(f *testing.F) {
	f.Add(trip, `{"city": "Rome", "nights": 1, "address": {"street": "Via"}}`)
	f.Add(`{"type": "string"}`, `"x"`)
	f.Add(`{"properties": {"a": {"properties": {"b": true}}}}`, `{"a": {"b": 1e99}}`)
	f.Fuzz(func(t *testing.T, schema, text string) {
		made, err := form.Parse(json.RawMessage(schema))
		if err != nil {
			return
		}

		answer, err := made.Answer(text)
		if err != nil {
			return
		}
		fitted, problems := made.Check(answer)
		if len(problems) > 0 {
			return
		}
		again, problems := made.Check(fitted)
		if len(problems) > 0 || string(again) != string(fitted) {
			t.Errorf("%s became %s: %v", fitted, again, problems)
		}
	})
}
