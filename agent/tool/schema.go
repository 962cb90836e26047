package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"rouse/internal/form"
)

// DefineBySchema returns a tool with arguments described by the Schema of its spec. run is called
// only with valid arguments.
func DefineBySchema(s Spec, run func(ctx context.Context, in Invocation, args json.RawMessage) (Envelope, error)) (Tool, error) {
	if err := s.Check(); err != nil {
		return Tool{}, err
	}
	if len(s.Schema) == 0 || s.Open {
		return Tool{}, fmt.Errorf("tool %s: it has no schema", s.Name)
	}

	schema, err := s.schema()
	if err != nil {
		return Tool{}, err
	}
	whole, err := s.resolved()
	if err != nil {
		return Tool{}, err
	}
	told, err := modelSchema(schema)
	if err != nil {
		return Tool{}, fmt.Errorf("tool %s: its schema cannot be written: %w", s.Name, err)
	}
	if s.Timeout == 0 {
		s.Timeout = defaultTimeout
	}

	call := func(ctx context.Context, in Invocation, args json.RawMessage) (Envelope, error) {
		given, err := decode(args)
		if err != nil {
			return Failure(KindInvalidArgs, "the arguments were not understood: %v", err), nil
		}
		if wrong := misfit(whole, given); wrong != nil {
			return wrong.refusal().Envelope, nil
		}
		return Answered(run(ctx, in, args))
	}
	return Tool{&s, schema, told, call}, nil
}

// resolved returns the Schema of a spec, ready for validation. It returns an error if the schema
// contains references, because it may come from strangers.
func (s Spec) resolved() (*jsonschema.Resolved, error) {
	if err := form.SelfContained(s.Schema); err != nil {
		return nil, fmt.Errorf("tool %s: %w", s.Name, err)
	}

	schema, err := s.schema()
	if err != nil {
		return nil, err
	}
	out, err := schema.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("tool %s: the schema of its arguments is not understood: %w", s.Name, err)
	}
	return out, nil
}

// misfit validates the arguments as a whole with a schema. It returns nil if they are valid.
func misfit(whole *jsonschema.Resolved, given any) *ArgumentError {
	raw, err := json.Marshal(given)
	var plain any // with numbers as float64, which the library requires
	if err == nil {
		err = json.Unmarshal(raw, &plain)
	}
	if err != nil {
		return &ArgumentError{"", "the arguments are not JSON: " + err.Error(), "a JSON object"}
	}
	if err = whole.Validate(plain); err == nil {
		return nil
	}

	field, message := SchemaPlace(err.Error())
	return &ArgumentError{field, "the arguments do not fit the schema: " + message, "what the schema of the arguments says"}
}

// SchemaPlace splits an error message of the JSON Schema library, which begins with the path
// through the schema. It returns the name of the value, or "", and the remaining message.
func SchemaPlace(message string) (field, wrong string) {
	at := ""
	for strings.HasPrefix(message, "validating ") {
		place, rest, ok := strings.Cut(strings.TrimPrefix(message, "validating "), ": ")
		if !ok {
			break
		}
		at, message = place, rest
	}

	field = strings.TrimPrefix(strings.ReplaceAll(strings.ReplaceAll(at, "/items", "[]"), "/properties/", "."), ".")
	if field == "root" || strings.Contains(field, "/") {
		field = ""
	}
	return field, message
}
