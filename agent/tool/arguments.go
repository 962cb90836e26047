package tool

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// Arguments are what the calls of a tool take.
type Arguments struct {
	schema *jsonschema.Schema
	whole  *jsonschema.Resolved // of a Schema, which may say what no type does; nil where a type describes them
}

// Unknown stands in the arguments of a planned call for a value that is only known when the call is made.
type Unknown struct{}

// ArgumentError is what is wrong with one argument of a planned call.
type ArgumentError struct {
	Field    string // like rows[0].amount
	Message  string
	Expected string // "" when the message says it
}

// Arguments are those of the spec's tool. They are known without making the tool.
func (s Spec) Arguments() (Arguments, error) {
	schema, err := s.schema()
	if err != nil || len(s.Schema) == 0 {
		return Arguments{schema: schema}, err
	}

	whole, err := s.resolved()
	return Arguments{schema, whole}, err
}

// schema describes the arguments: the fields of Args without omitempty are required.
func (s Spec) schema() (*jsonschema.Schema, error) {
	if len(s.Schema) > 0 {
		var out jsonschema.Schema
		if err := json.Unmarshal(s.Schema, &out); err != nil {
			return nil, fmt.Errorf("tool %s: the schema of its arguments is not understood: %w", s.Name, err)
		}
		return &out, nil
	}

	schema, err := jsonschema.ForType(s.Args, nil)
	if err != nil {
		return nil, fmt.Errorf("tool %s: its arguments have no schema: %w", s.Name, err)
	}

	for field, values := range s.Enum {
		p, ok := schema.Properties[field]
		if !ok {
			return nil, fmt.Errorf("tool %s: there is no argument %s", s.Name, field)
		}
		for _, v := range values {
			p.Enum = append(p.Enum, v)
		}
	}

	return schema, nil
}

// Schema is their JSON Schema.
func (a Arguments) Schema() (json.RawMessage, error) { return json.Marshal(a.schema) }

// Check reports all that is wrong with the arguments of a planned call, by the rules of the call itself.
// Values are as JSON has them, with numbers as json.Number, and an Unknown is right everywhere.
func (a Arguments) Check(given map[string]any) []ArgumentError {
	var c argumentCheck
	c.object("", a.schema, given)

	var out []ArgumentError
	for _, w := range c.wrong {
		out = append(out, ArgumentError{Field: w.field, Message: w.message, Expected: w.expected})
	}

	if len(out) == 0 && a.whole != nil && !holdsUnknown(given) {
		if wrong := misfit(a.whole, given); wrong != nil {
			out = append(out, ArgumentError{Field: wrong.field, Message: wrong.message, Expected: wrong.expected})
		}
	}
	return out
}

func holdsUnknown(v any) bool {
	switch v := v.(type) {
	case Unknown:
		return true
	case []any:
		return slices.ContainsFunc(v, holdsUnknown)
	case map[string]any:
		for _, item := range v {
			if holdsUnknown(item) {
				return true
			}
		}
	}
	return false
}
