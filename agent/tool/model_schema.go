package tool

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"rouse/internal/text"
)

// maxModelDepth is the maximum nesting depth of the schemas sent to models.
const maxModelDepth = 6

// Maximum lengths of constraints in descriptions, in characters.
const (
	maxToldValue   = 40
	maxToldPattern = 80
)

// The types of JSON Schema.
const (
	typeObject  = "object"
	typeArray   = "array"
	typeString  = "string"
	typeNumber  = "number"
	typeInteger = "integer"
	typeBoolean = "boolean"
	typeNull    = "null"
)

// asJSON is the description of a value of any type. Models send such a value as text.
const asJSON = "unless it is text: as JSON"

// plainSchema is a schema in the JSON Schema subset that every model server supports.
type plainSchema struct {
	Type        string       `json:"type"`
	Description string       `json:"description,omitempty"`
	Enum        []string     `json:"enum,omitempty"`
	Items       *plainSchema `json:"items,omitempty"`
	Properties  properties   `json:"properties,omitzero"`
	Required    []string     `json:"required,omitempty"`
}

// properties lists the properties of an object in the order in which models should write them. Nil
// means any properties.
type properties []property

type property struct {
	name   string
	schema *plainSchema
}

// IsZero reports whether the object may have any properties. Encoding then omits the list.
func (p properties) IsZero() bool { return p == nil }

// MarshalJSON implements json.Marshaler.
func (p properties) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, one := range p {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(one.name)
		if err != nil {
			return nil, err
		}
		schema, err := json.Marshal(one.schema)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(schema)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// modelSchema returns the plain subset of a schema, which is sent to models. Model servers
// translate schemas into their own grammars or types and reject requests with an unknown keyword.
// Descriptions contain the constraints that the subset cannot express. Calls are validated with the
// full schema.
func modelSchema(full *jsonschema.Schema) (json.RawMessage, error) {
	out := plainOf(full, 0)
	if out.Type != typeObject {
		out = &plainSchema{Type: typeObject}
	}
	// An object without a property list would allow any properties, which some servers reject.
	if out.Properties == nil {
		out.Properties = properties{}
	}
	return json.Marshal(out)
}

// plainOf returns the plain subset of a schema at a depth.
func plainOf(s *jsonschema.Schema, depth int) *plainSchema {
	s = withAllOf(s)
	var all []*plainSchema
	choices := append(slices.Clone(s.AnyOf), s.OneOf...)
	for _, choice := range choices {
		if choice.Type == typeNull || isNever(choice) {
			continue
		}
		if len(acceptedTypes(choice)) == 0 {
			typed := *choice
			typed.Type, typed.Types = s.Type, s.Types
			choice = &typed
		}
		all = append(all, plainOf(choice, depth))
	}

	own := kindsOf(s)
	if len(all) == 0 {
		for _, kind := range own {
			all = append(all, plainOfType(s, kind, depth))
		}
		return union(all)
	}

	out := *union(all)
	if out.Type == typeObject && slices.Contains(own, typeObject) {
		out = *plainOfType(s, typeObject, depth).and(&out)
	}
	out.Description = cmp.Or(s.Description, out.Description)
	return &out
}

// and adds the properties of another object to o and returns o.
func (o *plainSchema) and(other *plainSchema) *plainSchema {
	for _, p := range other.Properties {
		if !slices.ContainsFunc(o.Properties, func(known property) bool { return known.name == p.name }) {
			o.Properties = append(o.Properties, p)
		}
	}
	for _, name := range other.Required {
		if !slices.Contains(o.Required, name) {
			o.Required = append(o.Required, name)
		}
	}
	return o
}

// plainOfType returns the plain subset of a schema for values of one type.
func plainOfType(s *jsonschema.Schema, kind string, depth int) *plainSchema {
	out := &plainSchema{Type: kind, Description: s.Description}
	var notes []string
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }

	switch kind {
	case typeObject:
		if depth < maxModelDepth {
			out.setProperties(s, depth)
		}
		if values := s.AdditionalProperties; out.Properties == nil && isTyped(values) {
			note("any names; each value is of type %s", plainOf(values, maxModelDepth).Type)
		}
	case typeArray:
		out.Items = plainItems(s, depth)
		if s.MinItems != nil && *s.MinItems > 0 {
			note("at least %d", *s.MinItems)
		}
		if s.MaxItems != nil {
			note("at most %d", *s.MaxItems)
		}
	case "": // any value
		out.Type = typeString
		note(asJSON)
	case typeString:
		if s.Format != "" {
			note("format %s", s.Format)
		}
		if s.Pattern != "" && len(s.Pattern) <= maxToldPattern {
			note("matches %s", s.Pattern)
		}
		if s.MaxLength != nil {
			note("at most %d characters", *s.MaxLength)
		}
	case typeNumber, typeInteger:
		if s.Minimum != nil {
			note("at least %v", *s.Minimum)
		}
		if s.Maximum != nil {
			note("at most %v", *s.Maximum)
		}
	}

	if values := valuesOf(s); len(values) > 0 {
		if out.Enum = stringsOf(values); out.Enum == nil {
			note("one of %s", told(values...))
		} else if kind == "" {
			notes = nil // all values are strings, so the note about JSON does not apply
		}
		if kind != typeString && kind != "" {
			out.Enum = nil
		}
	}
	if len(s.Default) > 0 && len(s.Default) <= maxToldValue && string(s.Default) != "null" && !strings.Contains(strings.ToLower(s.Description), "default") {
		note("default %s", s.Default)
	}

	if len(notes) > 0 {
		out.Description = strings.TrimSpace(out.Description + " (" + strings.Join(notes, "; ") + ")")
	}
	return out
}

// setProperties sets the properties of an object: first those in the schema's own order, then the
// required ones, then the others by name.
func (o *plainSchema) setProperties(s *jsonschema.Schema, depth int) {
	names := slices.Clone(s.PropertyOrder)
	for _, name := range append(slices.Clone(s.Required), slices.Sorted(maps.Keys(s.Properties))...) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}

	for _, name := range names {
		p := s.Properties[name]
		if p == nil || isNever(p) || p.Type == typeNull {
			continue
		}
		o.Properties = append(o.Properties, property{name, plainOf(p, depth+1)})
		// Models cannot send null, so they may omit a required property that allows null.
		if slices.Contains(s.Required, name) && !allowsNull(p) {
			o.Required = append(o.Required, name)
		}
	}
}

// plainItems returns the plain schema of an array's items. At maxModelDepth, nested lists become
// text.
func plainItems(s *jsonschema.Schema, depth int) *plainSchema {
	var all []*plainSchema
	for _, one := range slices.Concat([]*jsonschema.Schema{s.Items}, s.PrefixItems, s.ItemsArray) {
		if one != nil && !isNever(one) {
			all = append(all, plainOf(one, min(depth+1, maxModelDepth)))
		}
	}

	out := union(all)
	if depth >= maxModelDepth && out.Type == typeArray {
		return &plainSchema{Type: typeString, Description: "a list, as JSON"}
	}
	return out
}

// precedence orders types from the most general to the least general. A union uses the first type
// that occurs.
var precedence = []string{typeObject, typeArray, typeString, typeNumber, typeInteger, typeBoolean}

// union returns one schema for values that match any of the given schemas.
func union(all []*plainSchema) *plainSchema {
	if len(all) == 0 {
		return &plainSchema{Type: typeString, Description: "(" + asJSON + ")"}
	}

	var types []string
	for _, one := range all {
		types = append(types, one.Type)
	}
	kind := ""
	for _, kind = range precedence {
		if slices.Contains(types, kind) {
			break
		}
	}
	if (kind == typeNumber || kind == typeInteger) && slices.Contains(types, typeBoolean) {
		return &plainSchema{Type: typeString, Description: strings.TrimSpace(all[0].Description + " (a number, true or false)")}
	}

	all = slices.DeleteFunc(all, func(one *plainSchema) bool { return one.Type != kind })
	if len(all) == 1 {
		return all[0]
	}
	out := &plainSchema{Type: kind, Description: all[0].Description}
	switch kind {
	case typeObject:
		out.mergeProperties(all)
	case typeArray:
		var items []*plainSchema
		for _, one := range all {
			items = append(items, one.Items)
		}
		out.Items = union(items)
	case typeString:
		out.Enum = unionOf(all)
	}
	return out
}

// mergeProperties sets the properties of o to the properties of all. A property is required only if
// all require it.
func (o *plainSchema) mergeProperties(all []*plainSchema) {
	var names []string
	byName := map[string][]*plainSchema{}
	for _, one := range all {
		if one.Properties == nil { // any properties
			return
		}
		for _, p := range one.Properties {
			if byName[p.name] == nil {
				names = append(names, p.name)
			}
			byName[p.name] = append(byName[p.name], p.schema)
		}
	}

	o.Properties = properties{}
	for _, name := range names {
		o.Properties = append(o.Properties, property{name, union(byName[name])})
		if !slices.ContainsFunc(all, func(one *plainSchema) bool { return !slices.Contains(one.Required, name) }) {
			o.Required = append(o.Required, name)
		}
	}
}

// unionOf returns the union of the schemas' enums, or nil if a schema allows any string.
func unionOf(all []*plainSchema) (out []string) {
	for _, one := range all {
		if one.Enum == nil {
			return nil
		}
		for _, v := range one.Enum {
			if !slices.Contains(out, v) {
				out = append(out, v)
			}
		}
	}
	return out
}

// withAllOf returns a schema with the schemas of its allOf keyword merged in.
func withAllOf(s *jsonschema.Schema) *jsonschema.Schema {
	if len(s.AllOf) == 0 {
		return s
	}
	out := *s
	out.AllOf = nil
	for _, part := range s.AllOf {
		out = *withBase(&out, withAllOf(part))
	}
	return &out
}

// withBase returns s with the missing constraints taken from base.
func withBase(s, base *jsonschema.Schema) *jsonschema.Schema {
	out := *s
	if out.Type == "" && len(out.Types) == 0 {
		out.Type, out.Types = base.Type, base.Types
	}
	if out.Description == "" {
		out.Description = base.Description
	}
	if len(out.Enum) == 0 && out.Const == nil {
		out.Enum, out.Const = base.Enum, base.Const
	}
	if out.Items == nil {
		out.Items = base.Items
	}
	if out.AdditionalProperties == nil {
		out.AdditionalProperties = base.AdditionalProperties
	}
	if len(out.AnyOf)+len(out.OneOf) == 0 {
		out.AnyOf, out.OneOf = base.AnyOf, base.OneOf
	}
	if len(base.Properties) > 0 {
		out.Properties = maps.Clone(base.Properties)
		maps.Copy(out.Properties, s.Properties)
	}

	out.PropertyOrder = slices.Clone(base.PropertyOrder)
	for _, name := range s.PropertyOrder {
		if !slices.Contains(out.PropertyOrder, name) {
			out.PropertyOrder = append(out.PropertyOrder, name)
		}
	}
	out.Required = slices.Clone(base.Required)
	for _, name := range s.Required {
		if !slices.Contains(out.Required, name) {
			out.Required = append(out.Required, name)
		}
	}
	return &out
}

// kindsOf returns the types that a schema allows, without null. If the schema names no type, it
// returns the type that the keywords imply, or "" for any type.
func kindsOf(s *jsonschema.Schema) []string {
	types := typesOf(s)
	switch values := valuesOf(s); {
	case len(types) > 0:
		if types = slices.DeleteFunc(types, func(t string) bool { return t == typeNull }); len(types) > 0 {
			return types
		}
		return []string{""}
	case len(s.Properties) > 0 || len(s.Required) > 0 || isTyped(s.AdditionalProperties):
		return []string{typeObject}
	case s.Items != nil || len(s.PrefixItems) > 0 || len(s.ItemsArray) > 0:
		return []string{typeArray}
	case len(values) > 0 && stringsOf(values) != nil, s.Pattern != "", s.Format != "", s.MaxLength != nil:
		return []string{typeString}
	case s.Minimum != nil, s.Maximum != nil:
		return []string{typeNumber}
	}
	return []string{""}
}

// typesOf returns the types named by a schema, or nil.
func typesOf(s *jsonschema.Schema) []string {
	if s.Type != "" {
		return []string{s.Type}
	}
	return slices.Clone(s.Types)
}

// valuesOf returns the values listed by a schema, without null, or nil if it does not list values.
func valuesOf(s *jsonschema.Schema) (out []any) {
	all := s.Enum
	if s.Const != nil {
		all = []any{*s.Const}
	}
	for _, v := range all {
		if v != nil && v != "" { // some servers reject the empty string
			out = append(out, v)
		}
	}
	return out
}

// stringsOf returns the values as strings, or nil if one is not a string.
func stringsOf(values []any) (out []string) {
	for _, v := range values {
		s, ok := v.(string)
		if !ok {
			return nil
		}
		out = append(out, s)
	}
	return out
}

// told returns a list of values as JSON for a description. Long values are truncated.
func told(values ...any) string {
	var out []string
	for _, v := range values {
		raw, err := json.Marshal(v)
		if err != nil {
			continue
		}
		out = append(out, text.Truncate(string(raw), maxToldValue))
	}
	return text.List(out, 20)
}

// isNever reports whether a schema rejects every value, as for a forbidden property.
func isNever(s *jsonschema.Schema) bool {
	return s.Not != nil && s.Type == "" && len(s.Types)+len(s.Properties)+len(s.AnyOf)+len(s.OneOf)+len(s.AllOf) == 0 && s.Description == ""
}

// allowsNull reports whether a schema allows null.
func allowsNull(s *jsonschema.Schema) bool {
	if slices.Contains(s.Enum, nil) || slices.Contains(typesOf(s), typeNull) {
		return true
	}
	return slices.ContainsFunc(s.AnyOf, allowsNull) || slices.ContainsFunc(s.OneOf, allowsNull)
}

// acceptedTypes returns the types that a schema accepts, or nil if it accepts any type.
func acceptedTypes(s *jsonschema.Schema) (out []string) {
	if out = typesOf(s); len(out) > 0 {
		return out
	}
	for _, choice := range append(slices.Clone(s.AnyOf), s.OneOf...) {
		types := acceptedTypes(choice)
		if types == nil {
			return nil
		}
		out = append(out, types...)
	}
	return out
}
