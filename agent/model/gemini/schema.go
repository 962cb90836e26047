package gemini

import (
	"encoding/json"
	"slices"
	"strings"

	"rouse/agent/model"
)

// schema is the API's subset of an OpenAPI schema.
type schema struct {
	Type        string             `json:"type,omitempty"`
	Format      string             `json:"format,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description,omitempty"`
	Nullable    bool               `json:"nullable,omitempty"`
	Enum        []string           `json:"enum,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	MinItems    *json.Number       `json:"minItems,omitempty"`
	MaxItems    *json.Number       `json:"maxItems,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Minimum     *json.Number       `json:"minimum,omitempty"`
	Maximum     *json.Number       `json:"maximum,omitempty"`
	MinLength   *json.Number       `json:"minLength,omitempty"`
	MaxLength   *json.Number       `json:"maxLength,omitempty"`
	Pattern     string             `json:"pattern,omitempty"`
	AnyOf       []*schema          `json:"anyOf,omitempty"`
}

// jsonSchema are the keywords of JSON Schema that are understood here.
type jsonSchema struct {
	Type                 stringOrList      `json:"type"`
	Format               string            `json:"format"`
	Title                string            `json:"title"`
	Description          string            `json:"description"`
	Enum                 []json.RawMessage `json:"enum"`
	Const                json.RawMessage   `json:"const"`
	Items                json.RawMessage   `json:"items"`
	MinItems             *json.Number      `json:"minItems"`
	MaxItems             *json.Number      `json:"maxItems"`
	Properties           map[string]json.RawMessage
	Required             []string          `json:"required"`
	AdditionalProperties json.RawMessage   `json:"additionalProperties"`
	Minimum              *json.Number      `json:"minimum"`
	Maximum              *json.Number      `json:"maximum"`
	MinLength            *json.Number      `json:"minLength"`
	MaxLength            *json.Number      `json:"maxLength"`
	Pattern              string            `json:"pattern"`
	AnyOf                []json.RawMessage `json:"anyOf"`
	OneOf                []json.RawMessage `json:"oneOf"`
	AllOf                json.RawMessage   `json:"allOf"`
	Ref                  string            `json:"$ref"`
}

// stringOrList is a string or a list of strings.
type stringOrList []string

// UnmarshalJSON implements json.Unmarshaler.
func (w *stringOrList) UnmarshalJSON(raw []byte) error {
	if raw[0] == '[' {
		return json.Unmarshal(raw, (*[]string)(w))
	}
	*w = make(stringOrList, 1)
	return json.Unmarshal(raw, &(*w)[0])
}

// encodeTool declares a tool.
func encodeTool(t model.Tool) function {
	f := function{Name: t.Name, Description: t.Description}
	if len(t.Schema) == 0 {
		return f
	}

	var g jsonSchema
	if json.Unmarshal(t.Schema, &g) == nil && slices.Equal(g.Type, stringOrList{"object"}) && len(g.Properties) == 0 && isClosed(g.AdditionalProperties) {
		return f // the API refuses an object without properties
	}

	if s, ok := toOpenAPI(t.Schema); ok && s.Type == "OBJECT" {
		f.Parameters = s
		return f
	}

	f.JSONSchema = cleanSchema(t.Schema)
	return f
}

// toOpenAPI translates a schema into the subset; false if that would lose what a model must know
// to call the tool. Losing a mere constraint does no harm: the host validates all arguments.
func toOpenAPI(raw json.RawMessage) (*schema, bool) {
	var g jsonSchema
	if json.Unmarshal(raw, &g) != nil || g.Ref != "" || g.AllOf != nil {
		return nil, false
	}

	// A type list with null is a nullable type; any other list of types has no translation.
	out := &schema{
		Title: g.Title, Description: g.Description, Pattern: g.Pattern, MinItems: g.MinItems, MaxItems: g.MaxItems,
		Minimum: g.Minimum, Maximum: g.Maximum, MinLength: g.MinLength, MaxLength: g.MaxLength,
	}
	types := slices.DeleteFunc(slices.Clone(g.Type), func(t string) bool { return t == "null" })
	out.Nullable = len(types) < len(g.Type)
	if choices := append(g.AnyOf, g.OneOf...); len(choices) > 0 {
		return out, len(types) == 0 && out.setAnyOf(choices)
	}
	if len(types) != 1 {
		return nil, false
	}

	out.Type = strings.ToUpper(types[0])
	if slices.Contains(formats[out.Type], g.Format) {
		out.Format = g.Format
	}

	if g.Const != nil {
		g.Enum = []json.RawMessage{g.Const}
	}

	switch out.Type {
	case "STRING":
		return out, out.setEnum(g.Enum)
	case "NUMBER", "INTEGER", "BOOLEAN":
		return out, g.Enum == nil
	case "ARRAY":
		items, ok := toOpenAPI(g.Items)
		out.Items = items
		return out, ok
	case "OBJECT":
		return out, out.setProperties(g)
	}

	return nil, false
}

// formats that the API knows. It refuses any other.
var formats = map[string][]string{"STRING": {"date-time"}, "NUMBER": {"float", "double"}, "INTEGER": {"int32", "int64"}}

func (s *schema) setEnum(values []json.RawMessage) bool {
	for _, raw := range values {
		var v string
		if json.Unmarshal(raw, &v) != nil {
			return false
		}
		s.Enum = append(s.Enum, v)
	}
	return true
}

func (s *schema) setAnyOf(choices []json.RawMessage) bool {
	for _, raw := range choices {
		var g jsonSchema
		if json.Unmarshal(raw, &g) == nil && slices.Equal(g.Type, stringOrList{"null"}) {
			s.Nullable = true
			continue
		}

		c, ok := toOpenAPI(raw)
		if !ok {
			return false
		}

		s.AnyOf = append(s.AnyOf, c)
	}
	return len(s.AnyOf) > 0
}

func (s *schema) setProperties(g jsonSchema) bool {
	if len(g.Properties) == 0 || !isClosed(g.AdditionalProperties) {
		return false // a free object
	}

	s.Properties = map[string]*schema{}
	for name, raw := range g.Properties {
		p, ok := toOpenAPI(raw)
		if !ok {
			return false
		}
		s.Properties[name] = p
	}

	// The API refuses a required property that is not declared, which JSON Schema allows.
	for _, name := range g.Required {
		if s.Properties[name] != nil {
			s.Required = append(s.Required, name)
		}
	}

	return true
}

// isClosed says whether an object may have its properties alone. A schema that does not say is
// taken for such.
func isClosed(additional json.RawMessage) bool {
	return additional == nil || string(additional) == "false"
}

// cleanSchema is a JSON Schema without $schema, and with {} for the schema true, which the API
// does not know.
func cleanSchema(raw json.RawMessage) json.RawMessage {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return raw
	}

	out, err := json.Marshal(replaceTrue(v))
	if err != nil {
		return raw
	}
	return out
}

// replaceTrue replaces true by {} where a schema is meant.
func replaceTrue(v any) any {
	s, ok := v.(map[string]any)
	if !ok {
		if v == true {
			return map[string]any{}
		}
		return v
	}

	delete(s, "$schema")
	if properties, ok := s["properties"].(map[string]any); ok {
		for name, p := range properties {
			properties[name] = replaceTrue(p)
		}
	}

	if items, ok := s["items"]; ok {
		s["items"] = replaceTrue(items)
	}

	return s
}
