package moduleapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/google/jsonschema-go/jsonschema"

	"rouse/agent/tool"
	"rouse/internal/form"
)

// CheckValue returns what of a JSON value does not fit a schema of a manifest (OSL-06).
func CheckValue(schema, value json.RawMessage) error {
	if len(schema) == 0 {
		return nil
	}

	resolved, err := resolve(schema)
	if err != nil {
		return err
	}
	var v any
	if err := json.Unmarshal(value, &v); err != nil {
		return fmt.Errorf("it is no JSON: %w", err)
	}
	return validate(resolved, v)
}

func resolve(schema json.RawMessage) (*jsonschema.Resolved, error) {
	if err := form.SelfContained(schema); err != nil { // a manifest with one is refused; settings have a file of their own
		return nil, err
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, fmt.Errorf("the schema is not understood: %w", err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("the schema is not understood: %w", err)
	}
	return resolved, nil
}

func validate(s *jsonschema.Resolved, v any) error {
	if err := s.Validate(v); err != nil {
		return errors.New(plain(err.Error()))
	}
	return nil
}

// The schema of the settings of a skill, and how large it may be.
const (
	configSchema    = "config-schema.json"
	maxConfigSchema = 1 << 20 // bytes
)

// Config returns host.config of a module: the settings of its owner, with the defaults of its
// config-schema.json (OSL-11). It is nil if there is no such schema and nothing is set.
func Config(dir string, set map[string]any) (json.RawMessage, error) {
	f, err := os.OpenInRoot(dir, configSchema)
	if errors.Is(err, fs.ErrNotExist) && len(set) == 0 {
		return nil, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("the skill has no settings: there is no " + configSchema)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()

	raw, err := io.ReadAll(io.LimitReader(f, maxConfigSchema))
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", configSchema, err)
	}
	schema, err := resolve(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", configSchema, err)
	}

	given, err := json.Marshal(set)
	if err != nil {
		return nil, fmt.Errorf("the settings cannot be written as JSON: %w", err)
	}
	all := map[string]any{}
	if err := json.Unmarshal(given, &all); err != nil {
		return nil, err
	}
	if all == nil { // nothing is set
		all = map[string]any{}
	}
	if err := schema.ApplyDefaults(&all); err != nil {
		return nil, fmt.Errorf("%s: %w", configSchema, err)
	}
	if err := validate(schema, all); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// plain is a message of the library of schemas with the name of the value, where it tells one.
func plain(message string) string {
	field, wrong := tool.SchemaPlace(message)
	if field == "" {
		return wrong
	}
	return field + ": " + wrong
}
