package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"rouse/internal/text"
)

// Limits of a tool's description and schema, which are part of every request to a model.
const (
	maxDescription = 4000     // characters
	maxSchema      = 64 << 10 // bytes of JSON, after references are expanded
	maxDepth       = 24       // of nested schemas
	maxSchemas     = 5000     // within one schema
)

// Keywords of JSON Schema by the kind of their value. Other keywords, such as enum and default, are
// copied unchanged.
var (
	named   = []string{"properties", "patternProperties", "dependentSchemas"} // maps from names to schemas
	single  = []string{"items", "additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "contains", "propertyNames", "not", "if", "then", "else"}
	several = []string{"allOf", "anyOf", "oneOf", "prefixItems"}
	dropped = []string{"$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$comment", "$vocabulary", "$defs", "definitions", "examples", "contentSchema"}
)

// plainSchema returns an object schema in the form that agents use. It expands local references and
// drops keywords that rouse does not need. It returns an error if the schema cannot be used.
func plainSchema(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) > maxSchema {
		return nil, fmt.Errorf("its schema has %d bytes, and %d are the most", len(raw), maxSchema)
	}
	var root map[string]any
	if err := json.Unmarshal(raw, &root); err != nil || root == nil {
		return nil, errors.New("its schema is no JSON object")
	}
	if kind, given := root["type"]; given && kind != "object" {
		return nil, errors.New("its schema is not that of an object")
	}

	p := plainer{root: root}
	out, err := p.schema(root, 0, nil)
	if err != nil {
		return nil, err
	}
	top, ok := out.(map[string]any)
	if !ok {
		return nil, errors.New("its schema is no JSON object")
	}
	top["type"] = "object"

	text, err := json.Marshal(top)
	switch {
	case err != nil:
		return nil, fmt.Errorf("its schema cannot be written: %w", err)
	case len(text) > maxSchema:
		return nil, fmt.Errorf("its schema has %d bytes once what it refers to is written out, and %d are the most", len(text), maxSchema)
	}
	return text, nil
}

// plainer expands a schema.
type plainer struct {
	root map[string]any
	seen int
}

// schema returns an expanded schema. refs are the references that lead to it.
func (p *plainer) schema(v any, depth int, refs []string) (any, error) {
	if p.seen++; p.seen > maxSchemas || depth > maxDepth {
		return nil, errors.New("its schema is nested too deep, or without end")
	}
	m, ok := v.(map[string]any)
	if !ok {
		if _, yes := v.(bool); yes {
			return v, nil
		}
		return nil, errors.New("its schema holds something that is no schema")
	}

	if ref, ok := m["$ref"]; ok {
		return p.referred(m, ref, depth, refs)
	}
	if _, ok := m["$dynamicRef"]; ok {
		return nil, errors.New("its schema refers to another with $dynamicRef")
	}

	out := map[string]any{}
	for key, value := range m {
		var err error
		switch {
		case slices.Contains(dropped, key):
			continue
		case slices.Contains(named, key):
			value, err = p.byName(key, value, depth, refs)
		case slices.Contains(several, key) || key == "items" && isList(value):
			value, err = p.list(value, depth, refs)
		case slices.Contains(single, key):
			value, err = p.schema(value, depth+1, refs)
		case key == "pattern" && !compiles(value): // not a Go regular expression; the server checks it itself
			continue
		case key == "title" || key == "description":
			value = shown(value)
		case key == "required" && value == nil:
			continue
		}
		if err != nil {
			return nil, err
		}
		out[key] = value
	}
	return out, nil
}

// referred expands a reference and merges the keywords next to it.
func (p *plainer) referred(m map[string]any, ref any, depth int, refs []string) (any, error) {
	name, ok := ref.(string)
	if !ok || !strings.HasPrefix(name, "#/") {
		return nil, errors.New("its schema refers to another one, which is not fetched")
	}
	if slices.Contains(refs, name) {
		return nil, fmt.Errorf("its schema refers to itself without end (%s)", text.OneLine(text.Truncate(name, 100)))
	}

	var at any = p.root
	for part := range strings.SplitSeq(strings.TrimPrefix(name, "#/"), "/") {
		in, ok := at.(map[string]any)
		if !ok {
			return nil, errors.New("its schema refers to a part that it does not have")
		}
		at = in[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	target, ok := at.(map[string]any)
	if !ok {
		return nil, errors.New("its schema refers to a part that it does not have")
	}

	// Keywords next to a reference override those of its target, for example descriptions.
	both := maps.Clone(target)
	for key, value := range m {
		if key != "$ref" {
			both[key] = value
		}
	}
	return p.schema(both, depth+1, append(slices.Clone(refs), name))
}

func (p *plainer) byName(key string, v any, depth int, refs []string) (any, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("its schema has properties that are none")
	}
	out := map[string]any{}
	for name, one := range m {
		if name == "" || len(name) > 200 || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return nil, fmt.Errorf("its schema has an argument of the name %q", text.Truncate(name, 100))
		}
		if key == "patternProperties" && !compiles(name) {
			continue
		}

		plain, err := p.schema(one, depth+1, refs)
		if err != nil {
			return nil, err
		}
		out[name] = plain
	}
	return out, nil
}

func (p *plainer) list(v any, depth int, refs []string) (any, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, errors.New("its schema holds something that is no schema")
	}
	out := make([]any, len(list))
	for i, one := range list {
		plain, err := p.schema(one, depth+1, refs)
		if err != nil {
			return nil, err
		}
		out[i] = plain
	}
	return out, nil
}

func isList(v any) bool {
	_, ok := v.([]any)
	return ok
}

// compiles reports whether a pattern is a valid Go regular expression. JavaScript patterns may use
// syntax that Go does not support.
func compiles(v any) bool {
	pattern, ok := v.(string)
	if !ok || len(pattern) > 1000 {
		return false
	}
	_, err := regexp.Compile(pattern)
	return err == nil
}

// shown removes characters from a text that could mislead a terminal or a reader.
func shown(v any) any {
	s, ok := v.(string)
	if !ok {
		return ""
	}
	return text.Truncate(text.Clean(s), maxDescription)
}
