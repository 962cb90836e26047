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

// CheckValue returns an error if a JSON value does not match a schema of a manifest.
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
	// A manifest with a reference is refused earlier, but the settings have their own schema file.
	if err := form.SelfContained(schema); err != nil {
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

// File name and maximum size of the schema of a skill's settings.
const (
	configSchema    = "config-schema.json"
	maxConfigSchema = 1 << 20 // bytes
)

// Config returns host.config of a module: the owner's settings, with the defaults of
// config-schema.json. It returns nil if the schema does not exist and set is empty.
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
	if all == nil { // set is nil
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

// plain returns a message of the schema library, prefixed with the name of the value if known.
func plain(message string) string {
	field, wrong := tool.SchemaPlace(message)
	if field == "" {
		return wrong
	}
	return field + ": " + wrong
}
