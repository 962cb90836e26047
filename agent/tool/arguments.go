package tool

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"rouse/internal/jsonread"
)

// Arguments are the arguments of a tool's calls. They are known without making the tool.
type Arguments struct {
	schema   *jsonschema.Schema
	synonyms [][2]string
	whole    *jsonschema.Resolved // nil if a Go type describes the arguments
}

// Unknown stands in the arguments of a planned call for a value that is only known when the call is made.
type Unknown struct{}

// ArgumentError is a wrong argument of a call.
type ArgumentError struct {
	Field    string // like rows[0].amount
	Message  string
	Expected string // "" if the message says it
}

func (e *ArgumentError) refusal() *Refusal {
	return Refuse(KindInvalidArgs, "%s", e.Message).WithField(e.Field, e.Expected)
}

// Arguments returns the arguments of the spec's tool.
func (s Spec) Arguments() (Arguments, error) {
	schema, err := s.schema()
	if err != nil || len(s.Schema) == 0 {
		return Arguments{schema: schema, synonyms: s.Synonyms}, err
	}
	whole, err := s.resolved()
	return Arguments{schema: schema, whole: whole}, err
}

// typedSchema holds the schemas that follow from the Go type of a tool's arguments. Both are
// shared.
type typedSchema struct {
	checks *jsonschema.Schema // of calls
	told   json.RawMessage    // as a model is told of it
}

// typedSchemas keeps the schemas for all runs: making those of an agent's tools takes longer than a
// short run.
var typedSchemas = struct {
	sync.Mutex
	made map[string]typedSchema
}{made: map[string]typedSchema{}}

// mostTypedSchemas bounds typedSchemas, because the values of some arguments are configured.
const mostTypedSchemas = 4096

func (s Spec) typed() (typedSchema, error) {
	if s.Args == nil {
		return typedSchema{}, fmt.Errorf("tool %s: its arguments have no schema", s.Name)
	}
	// Types of one name in two packages or functions have different addresses.
	key := fmt.Sprintf("%s %p %q %q", s.Name, s.Args, s.Enum, s.Suggested)
	typedSchemas.Lock()
	defer typedSchemas.Unlock()
	if known, ok := typedSchemas.made[key]; ok {
		return known, nil
	}

	var out typedSchema
	var err error
	if out.checks, err = s.newSchema(); err != nil {
		return out, err
	}
	told, err := s.newSchema()
	if err != nil {
		return out, err
	}
	if err := s.addEnum(told, s.Suggested); err != nil {
		return out, err
	}
	if out.told, err = modelSchema(told); err != nil {
		return out, fmt.Errorf("tool %s: its schema cannot be written: %w", s.Name, err)
	}

	if len(typedSchemas.made) >= mostTypedSchemas {
		clear(typedSchemas.made)
	}
	typedSchemas.made[key] = out
	return out, nil
}

// schema describes the arguments: the fields of Args without omitempty are required. It is shared.
func (s Spec) schema() (*jsonschema.Schema, error) {
	if len(s.Schema) == 0 {
		typed, err := s.typed()
		return typed.checks, err
	}

	var out jsonschema.Schema
	if err := json.Unmarshal(s.Schema, &out); err != nil {
		return nil, fmt.Errorf("tool %s: the schema of its arguments is not understood: %w", s.Name, err)
	}
	return &out, nil
}

func (s Spec) newSchema() (*jsonschema.Schema, error) {
	schema, err := jsonschema.ForType(s.Args, &jsonschema.ForOptions{TypeSchemas: argumentTypes})
	if err != nil {
		return nil, fmt.Errorf("tool %s: its arguments have no schema: %w", s.Name, err)
	}

	return schema, s.addEnum(schema, s.Enum)
}

// argumentTypes are the types of arguments that describe themselves.
var argumentTypes = map[reflect.Type]*jsonschema.Schema{reflect.TypeFor[Values](): {Types: []string{typeArray, typeObject}}}

// Values is an argument that is a list of values, or an object of them. Models are asked for an
// object, in which each value keeps its type.
type Values struct {
	List  []any
	Named map[string]any
}

// UnmarshalJSON implements json.Unmarshaler.
func (v *Values) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '[' {
		return jsonread.UnmarshalNumbers(raw, &v.List)
	}
	return jsonread.UnmarshalNumbers(raw, &v.Named)
}

// addEnum bounds what string arguments may be.
func (s Spec) addEnum(schema *jsonschema.Schema, allowed map[string][]string) error {
	for field, values := range allowed {
		p, ok := schema.Properties[field]
		if !ok {
			return fmt.Errorf("tool %s: there is no argument %s", s.Name, field)
		}
		for _, v := range values {
			p.Enum = append(p.Enum, v)
		}
	}
	return nil
}

// Schema is their JSON Schema.
func (a Arguments) Schema() (json.RawMessage, error) { return json.Marshal(a.schema) }

// Check reports all that is wrong with the arguments of a planned call, by the rules of the call
// itself. Numbers are json.Number, and an Unknown is right everywhere.
func (a Arguments) Check(given map[string]any) []ArgumentError {
	c := argumentCheck{synonyms: a.synonyms}
	c.object("", a.schema, given)
	if len(c.wrong) == 0 && a.whole != nil && !holdsUnknown(given) {
		if wrong := misfit(a.whole, given); wrong != nil {
			c.wrong = append(c.wrong, *wrong)
		}
	}
	return c.wrong
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
