package yaml

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"rouse/agent"
	"rouse/agent/tool"
	"rouse/agent/tool/moduleapi"
	"rouse/cmd/internal/config"
)

// Schema returns the JSON Schema of rouse.yaml, including the arguments of all tools for
// playbooks.
func Schema() ([]byte, error) {
	s := object(reflect.TypeFor[config.Config](), false)
	call, err := playbookCall(agent.Specs())
	if err != nil {
		return nil, err
	}

	s["$defs"] = schema{callSchema: call}
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "rouse.yaml"
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("the JSON Schema cannot be written: %w", err)
	}
	return text, nil
}

type schema = map[string]any

// callSchema is the name of the definition of a playbook call.
const callSchema = "call"

// playbookCall returns the schema of a playbook call. The schema of with depends on the called
// tool.
func playbookCall(tools tool.Specs) (schema, error) {
	out := object(reflect.TypeFor[config.PlaybookCall](), false)
	var names []string
	var takes []any
	for _, s := range tools.Where(tool.Spec.Callable) {
		a, err := s.Arguments()
		if err != nil {
			return nil, err
		}
		raw, err := a.Schema()
		if err != nil {
			return nil, err
		}
		var with schema
		if err := json.Unmarshal(raw, &with); err != nil {
			return nil, err
		}

		then := schema{"properties": schema{"with": orLater(with)}}
		if with["required"] != nil {
			then["required"] = []string{"with"}
		}
		names = append(names, s.Name)
		takes = append(takes, schema{"if": schema{"properties": schema{"call": schema{"const": s.Name}}, "required": []string{"call"}}, "then": then})
	}

	slices.Sort(names)
	properties := out["properties"].(schema)
	// The tools of skills are not known here, so a pattern allows them.
	name := orVariable(schema{"anyOf": []any{schema{"enum": names}, schema{"type": "string", "pattern": moduleapi.OfferPattern}}})
	name["description"] = properties["call"].(schema)["description"]
	properties["call"], out["allOf"] = name, takes
	return out, nil
}

// orLater also allows a template or an expression for each value that is not free text.
func orLater(s schema) schema {
	for _, key := range []string{"properties", "items", "additionalProperties"} {
		inner, ok := s[key].(schema)
		switch {
		case !ok:
		case key == "properties":
			for name, p := range inner {
				if p, ok := p.(schema); ok {
					inner[name] = later(p)
				}
			}
		case len(inner) > 0 && inner["not"] == nil:
			s[key] = later(inner)
		}
	}
	return s
}

// later allows a value, or a template or expression that becomes one in a run.
func later(s schema) schema {
	_, bounded := s["enum"]
	if s["type"] == "string" && !bounded || s["type"] == nil && !bounded {
		return s
	}

	out := schema{"anyOf": []any{orLater(s), schema{"type": "string", "pattern": `^= |\{\{|\$\{`}}}
	if say := s["description"]; say != nil {
		out["description"] = say
		delete(s, "description")
	}
	return out
}

// object returns the schema of a struct. For defaults, overlay drops required keys and keys of one
// job.
func object(t reflect.Type, overlay bool) schema {
	properties, required := schema{}, []string{}
	for _, f := range config.Fields(t) {
		if overlay && f.JobOnly {
			continue
		}

		p := describe(t.Field(f.Index).Type, f, overlay || f.Key == "defaults")
		say := f.Doc
		if absent := f.Default + f.DefaultDoc; absent != "" {
			say = strings.TrimSpace(say + " (default: " + absent + ")")
		}

		if say != "" {
			p["description"] = say
		}

		properties[f.Key] = p
		if f.Required && !overlay {
			required = append(required, f.Key)
		}
	}

	out := schema{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		out["required"] = required
	}

	return out
}

func describe(t reflect.Type, f config.Field, overlay bool) schema {
	switch t {
	case reflect.TypeFor[config.After]():
		return schema{"oneOf": []any{
			schema{"enum": []string{"leave", "delete"}},
			schema{"type": "object", "required": []string{"move"}, "additionalProperties": false, "properties": schema{"move": schema{"type": "string"}}},
		}}
	case reflect.TypeFor[config.ReadGrant](), reflect.TypeFor[config.LoginGrant](), reflect.TypeFor[config.Followed]():
		return schema{"anyOf": []any{schema{"type": "string"}, object(t, overlay)}}
	case reflect.TypeFor[config.PlaybookCall]():
		return schema{"$ref": "#/$defs/" + callSchema}
	case reflect.TypeFor[config.Name]():
		return schema{"type": "string", "pattern": config.NameForm.String()}
	case reflect.TypeFor[config.Duration]():
		return schema{"type": "string", "examples": []string{"30s", "15m", "7d"}}
	case reflect.TypeFor[config.Size]():
		return schema{"type": []string{"string", "integer"}, "examples": []string{"10MiB"}}
	}

	switch t.Kind() {
	case reflect.Pointer:
		return describe(t.Elem(), f, overlay)
	case reflect.Struct:
		return object(t, overlay)
	case reflect.Slice:
		items := schema{"type": "array", "items": describe(t.Elem(), f, overlay)}
		if oneWillDo(t.Elem()) {
			return schema{"anyOf": []any{items, describe(t.Elem(), f, overlay)}}
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

func describeScalar(t reflect.Type, f config.Field) schema {
	lowest := 0
	if f.Positive {
		lowest = 1
	}

	switch t.Kind() {
	case reflect.Bool:
		return orVariable(schema{"type": "boolean"})
	case reflect.Int, reflect.Int64:
		return orVariable(schema{"type": "integer", "minimum": lowest})
	case reflect.Float64:
		if f.Positive {
			return orVariable(schema{"type": "number", "exclusiveMinimum": 0})
		}
		return orVariable(schema{"type": "number", "minimum": 0})
	}

	if f.Enum == "" {
		return schema{"type": []string{"string", "number", "boolean"}} // strings may be unquoted
	}

	return orVariable(schema{"enum": strings.Split(f.Enum, "|")})
}

// orVariable also allows ${NAME} for a value.
func orVariable(s schema) schema {
	return schema{"anyOf": []any{s, schema{"type": "string", "pattern": `\$\{`}}}
}
