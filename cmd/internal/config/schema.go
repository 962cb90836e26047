package config

import (
	"encoding/json"
	"reflect"
	"strings"
)

// Schema is the JSON Schema of rouse.yaml, made of the same tags that the decoder reads.
func Schema() ([]byte, error) {
	s := object(reflect.TypeFor[Config](), false)
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "rouse.yaml"
	return json.MarshalIndent(s, "", "  ")
}

func object(t reflect.Type, overlay bool) map[string]any {
	properties := map[string]any{}
	required := []string{}
	for _, f := range fieldsOf(t) {
		p := typeSchema(t.Field(f.index).Type, f.enum, overlay || f.key == "defaults")
		say := f.say
		if f.later != "" {
			say = strings.TrimSpace("Not available in this version (" + f.later + "). " + say)
			p["deprecated"] = true
		}
		if f.unset != "" {
			say = strings.TrimSpace(say + " (default: " + f.unset + ")")
		}
		if say != "" {
			p["description"] = say
		}
		properties[f.key] = p
		if f.need && !overlay {
			required = append(required, f.key)
		}
	}
	out := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

func typeSchema(t reflect.Type, enum string, overlay bool) map[string]any {
	switch t {
	case reflect.TypeFor[After]():
		return map[string]any{"oneOf": []any{
			map[string]any{"enum": []string{"leave", "delete"}},
			map[string]any{"type": "object", "required": []string{"move"}, "additionalProperties": false, "properties": map[string]any{"move": map[string]any{"type": "string"}}},
		}}
	case reflect.TypeFor[Name]():
		return map[string]any{"type": "string", "pattern": nameForm.String()}
	case reflect.TypeFor[Duration]():
		return map[string]any{"type": "string", "examples": []string{"30s", "15m", "7d"}}
	case reflect.TypeFor[Size]():
		return map[string]any{"type": []string{"string", "integer"}, "examples": []string{"10MiB"}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeSchema(t.Elem(), enum, overlay)
	case reflect.Struct:
		return object(t, overlay)
	case reflect.Slice:
		list := map[string]any{"type": "array", "items": typeSchema(t.Elem(), enum, overlay)}
		if t.Elem().Kind() == reflect.String {
			return map[string]any{"oneOf": []any{list, typeSchema(t.Elem(), enum, overlay)}}
		}
		return list
	case reflect.Map:
		return map[string]any{"type": "object"}
	case reflect.Interface:
		return map[string]any{}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return map[string]any{"type": "integer", "minimum": 0}
	case reflect.Float64:
		return map[string]any{"type": "number", "minimum": 0}
	}
	s := map[string]any{"type": "string"}
	if enum != "" {
		var values []string
		for v := range strings.SplitSeq(enum, "|") {
			values = append(values, strings.TrimSuffix(v, "*"))
		}
		s["enum"] = values
	}
	return s
}
