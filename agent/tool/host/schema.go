package host

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// CheckValue says what of a JSON value does not fit a schema of a manifest (OSL-06).
func CheckValue(schema, value json.RawMessage) error {
	if len(schema) == 0 {
		return nil
	}

	var s jsonschema.Schema
	if err := json.Unmarshal(schema, &s); err != nil {
		return fmt.Errorf("the schema is not understood: %w", err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		return fmt.Errorf("the schema is not understood: %w", err)
	}

	var v any
	dec := json.NewDecoder(bytes.NewReader(value))
	if err := dec.Decode(&v); err != nil {
		return fmt.Errorf("it is no JSON: %w", err)
	}
	if err := resolved.Validate(v); err != nil {
		return fmt.Errorf("%s", plain(err.Error()))
	}
	return nil
}

// plain is a message of the library without the path through the schema that it begins with.
func plain(message string) string {
	for strings.HasPrefix(message, "validating ") {
		_, rest, ok := strings.Cut(message, ": ")
		if !ok {
			break
		}
		message = rest
	}
	return message
}
