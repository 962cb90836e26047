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

// Arguments describes the arguments of a tool. It does not require a tool, only its spec.
type Arguments struct {
	schema   *jsonschema.Schema
	synonyms [][2]string
	whole    *jsonschema.Resolved // nil if a Go type describes the arguments
}

// Unknown is a placeholder in the arguments of a planned call for a value that is known only when
// the call is made.
type Unknown struct{}

// ArgumentError describes an invalid argument of a call.
type ArgumentError struct {
	Field    string // path of the argument, for example rows[0].amount
	Message  string
	Expected string // expected value; "" if the message contains it
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

// typedSchema holds the schemas derived from the Go type of a tool's arguments. Both are shared and
// must not be changed.
type typedSchema struct {
	checks *jsonschema.Schema // full schema, which validates calls
	told   json.RawMessage    // plain subset for models
}

// typedSchemas caches the schemas for all runs, because creating them takes longer than a short
// run.
var typedSchemas = struct {
	sync.Mutex
	made map[string]typedSchema
}{made: map[string]typedSchema{}}

// mostTypedSchemas is the maximum size of typedSchemas. The cache needs a limit because the allowed
// values of some arguments come from the configuration.
const mostTypedSchemas = 4096

func (s Spec) typed() (typedSchema, error) {
	if s.Args == nil {
		return typedSchema{}, fmt.Errorf("tool %s: its arguments have no schema", s.Name)
	}
	// %p distinguishes types with the same name from different packages or functions.
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

// schema returns the full schema of the arguments. Fields of Args without omitempty are required.
// The caller must not change it, because it is shared.
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

// argumentTypes contains the schemas of argument types with their own JSON encoding.
var argumentTypes = map[reflect.Type]*jsonschema.Schema{reflect.TypeFor[Values](): {Types: []string{typeArray, typeObject}}}

// Values is an argument that is either a list or an object. The schema asks models for an object,
// in which each value keeps its type.
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

// addEnum restricts string arguments to the allowed values. It returns an error if an argument does
// not exist.
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

// Schema returns the JSON Schema of the arguments.
func (a Arguments) Schema() (json.RawMessage, error) { return json.Marshal(a.schema) }

// Check returns all errors in the arguments of a planned call, using the rules for a real call.
// Numbers must be json.Number. An Unknown is valid for every argument.
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
