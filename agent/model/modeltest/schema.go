package modeltest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// maxSchemaDepth is the maximum nesting of schemas below the arguments of a tool.
const maxSchemaDepth = 8

// toolProblem returns the reason why a server would reject a tool, or "" if all servers accept it.
// Each server knows more of JSON Schema, but only this subset is common to all of them. llama.cpp
// compiles a grammar, Ollama decodes into a type, and Gemini has its own schema type.
func toolProblem(at, name string, schema json.RawMessage) string {
	var root map[string]any
	switch {
	case name == "":
		return at + ": the name is missing"
	case json.Unmarshal(schema, &root) != nil || root["type"] != "object":
		return at + ": the schema is no object"
	case root["properties"] == nil:
		return at + ": object schema missing properties"
	}
	return plainProblem(at, root, 0)
}

func plainProblem(at string, v any, depth int) string {
	s, ok := v.(map[string]any)
	switch {
	case !ok:
		return fmt.Sprintf("%s: Unrecognized schema: %v", at, v)
	case depth > maxSchemaDepth:
		return at + ": nested too deep"
	}
	for key := range s {
		if !slices.Contains([]string{"type", "description", "enum", "items", "properties", "required"}, key) {
			return fmt.Sprintf("%s: Unknown name %q", at, key)
		}
	}
	kind, _ := s["type"].(string)
	if !slices.Contains([]string{"object", "array", "string", "number", "integer", "boolean"}, kind) {
		return fmt.Sprintf("%s: Unrecognized schema: its type is %v", at, s["type"])
	}
	if (s["items"] != nil) != (kind == "array") || s["properties"] != nil && kind != "object" || s["enum"] != nil && kind != "string" {
		return at + ": items, properties or enum do not belong to the type " + kind
	}

	values, _ := s["enum"].([]any)
	for _, value := range values {
		if text, ok := value.(string); !ok || text == "" {
			return fmt.Sprintf("%s.enum: %v is no text, or empty", at, value)
		}
	}
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	for _, name := range required {
		if text, ok := name.(string); !ok || properties[text] == nil {
			return fmt.Sprintf("%s.required: property %v is not defined", at, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if problem := plainProblem(at+"."+name, properties[name], depth+1); problem != "" {
			return problem
		}
	}
	if kind == "array" {
		return plainProblem(at+"[]", s["items"], depth+1)
	}
	return ""
}
