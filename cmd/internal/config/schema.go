package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Schema is the JSON Schema of rouse.yaml, made of the same tags that the decoder reads.
func Schema() ([]byte, error) {
	s := tags{}.object(reflect.TypeFor[Config](), false)
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "rouse.yaml"
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("the JSON Schema cannot be written: %w", err)
	}
	return text, nil
}

type schema = map[string]any

// object describes a struct. Inside defaults nothing is required, and what belongs to one
// job is not there.
func (known tags) object(t reflect.Type, overlay bool) schema {
	properties, required := schema{}, []string{}
	for _, f := range known.of(t) {
		if overlay && f.owns {
			continue
		}

		p := known.describe(t.Field(f.index).Type, f, overlay || f.key == "defaults")
		say := f.say
		if f.later != "" {
			say = strings.TrimSpace("Not available in this version (" + f.later + "). " + say)
			// Editors strike it through; the decoder refuses its use.
			p["deprecated"] = true
		}

		if absent := f.preset + f.unset; absent != "" {
			say = strings.TrimSpace(say + " (default: " + absent + ")")
		}

		if say != "" {
			p["description"] = say
		}

		properties[f.key] = p
		if f.need && !overlay {
			required = append(required, f.key)
		}
	}

	out := schema{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		out["required"] = required
	}

	return out
}

func (known tags) describe(t reflect.Type, f field, overlay bool) schema {
	switch t {
	case reflect.TypeFor[After]():
		return schema{"oneOf": []any{
			schema{"enum": []string{"leave", "delete"}},
			schema{"type": "object", "required": []string{"move"}, "additionalProperties": false, "properties": schema{"move": schema{"type": "string"}}},
		}}
	case reflect.TypeFor[readGrant]():
		return schema{"anyOf": []any{schema{"type": "string"}, known.object(t, overlay)}}
	case reflect.TypeFor[Name]():
		return schema{"type": "string", "pattern": nameForm.String()}
	case reflect.TypeFor[Duration]():
		return schema{"type": "string", "examples": []string{"30s", "15m", "7d"}}
	case reflect.TypeFor[Size]():
		return schema{"type": []string{"string", "integer"}, "examples": []string{"10MiB"}}
	}

	switch t.Kind() {
	case reflect.Pointer:
		return known.describe(t.Elem(), f, overlay)
	case reflect.Struct:
		return known.object(t, overlay)
	case reflect.Slice:
		items := schema{"type": "array", "items": known.describe(t.Elem(), f, overlay)}
		// As in the decoder's list: the two have to agree on what may be written.
		if t.Elem().Kind() == reflect.String || t.Elem() == reflect.TypeFor[readGrant]() {
			return schema{"anyOf": []any{items, known.describe(t.Elem(), f, overlay)}} // a single word will do
		}
		return items
	case reflect.Map:
		if t.Elem().Kind() == reflect.String {
			return schema{"type": "object", "additionalProperties": schema{"type": []string{"string", "number", "boolean"}}}
		}
		return schema{"type": "object"}
	case reflect.Interface:
		return schema{}
	}

	return describeScalar(t, f)
}

func describeScalar(t reflect.Type, f field) schema {
	lowest := 0
	if f.positive {
		lowest = 1
	}

	switch t.Kind() {
	case reflect.Bool:
		return orVariable(schema{"type": "boolean"})
	case reflect.Int, reflect.Int64:
		return orVariable(schema{"type": "integer", "minimum": lowest})
	case reflect.Float64:
		if f.positive {
			return orVariable(schema{"type": "number", "exclusiveMinimum": 0})
		}
		return orVariable(schema{"type": "number", "minimum": 0})
	}

	if f.enum == "" {
		return schema{"type": []string{"string", "number", "boolean"}} // a text need not be quoted
	}

	var values []string
	for value := range strings.SplitSeq(f.enum, "|") {
		if !strings.HasSuffix(value, "*") {
			values = append(values, value)
		}
	}

	return orVariable(schema{"enum": values})
}

// orVariable also allows ${NAME} in the place of a value.
func orVariable(s schema) schema {
	return schema{"anyOf": []any{s, schema{"type": "string", "pattern": `\$\{`}}}
}
