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

// plain is a message of the library, which begins with the path through the schema, with the name of the value instead.
func plain(message string) string {
	at := ""
	for strings.HasPrefix(message, "validating ") {
		place, rest, ok := strings.Cut(strings.TrimPrefix(message, "validating "), ": ")
		if !ok {
			break
		}
		at, message = place, rest
	}

	field := strings.TrimPrefix(strings.ReplaceAll(strings.ReplaceAll(at, "/items", "[]"), "/properties/", "."), ".")
	if field == "" || field == "root" || strings.Contains(field, "/") {
		return message
	}
	return field + ": " + message
}
