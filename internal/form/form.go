// Package form turns a JSON Schema into form fields, parses what a person types, and checks answers
// field by field.
//
// Schemas come from models and skills and are untrusted. Their size is limited, and references are
// refused, because a recursive reference makes a check run forever. The library
// google/jsonschema-go alone decides whether an answer is valid; this package explains which field
// is wrong.
package form

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// Limits of a schema.
const (
	maxSchema = 16 << 10 // bytes
	maxDepth  = 8        // levels of nested objects
)

// Form is a parsed form.
type Form struct {
	fields []Field
	root   *jsonschema.Resolved
	object bool // the answer is an object; otherwise it is the value of the only field
}

// Field is a value that a form asks for.
type Field struct {
	// Path is the list of property names, outermost first. It is empty if the answer itself is the
	// value.
	Path        []string
	Kind        Kind
	Title       string
	Description string
	Enum        []json.RawMessage // allowed values; empty means any value
	Default     json.RawMessage   // nil if there is no default
	Required    bool

	requires []bool // for each name of Path: whether it is required in its object
	check    *jsonschema.Resolved
}

// Kind is the type of input for a field.
type Kind string

// The kinds of input.
const (
	Text    Kind = "text"
	Integer Kind = "whole number"
	Number  Kind = "number"
	Boolean Kind = "yes or no"
	List    Kind = "list" // list of texts
	JSON    Kind = "JSON" // anything else
)

// Problem describes an error in one field of an answer.
type Problem struct {
	Field   string `json:"field"` // name of the field, with dots; "" for the whole answer
	Message string `json:"message"`
}

// String returns the problem as a clause.
func (p Problem) String() string {
	if p.Field == "" {
		return p.Message
	}
	return p.Field + ": " + p.Message
}

// object is the part of a schema that describes a form.
type object struct {
	Type        any               `json:"type"`
	Title       string            `json:"title"`
	Description string            `json:"description"`
	Enum        []json.RawMessage `json:"enum"`
	Default     json.RawMessage   `json:"default"`
	Properties  json.RawMessage   `json:"properties"`
	Required    []string          `json:"required"`
	Items       json.RawMessage   `json:"items"`
}

// read parses a schema. The schemas true and false are valid, but do not describe a form.
func (o *object) read(schema json.RawMessage) error {
	if s := string(bytes.TrimSpace(schema)); s == "true" || s == "false" {
		return nil
	}
	return json.Unmarshal(schema, o)
}

// ofTexts reports whether the items of an array are strings.
func (o object) ofTexts() bool {
	var item object
	return len(o.Items) > 0 && item.read(o.Items) == nil && item.kindOf() == "string"
}

// Parse returns the form of a schema. It returns an error if the schema is invalid, too large or
// has references.
func Parse(schema json.RawMessage) (*Form, error) {
	if len(schema) > maxSchema {
		return nil, fmt.Errorf("the schema has %d bytes; at most %d are read", len(schema), maxSchema)
	}

	if err := SelfContained(schema); err != nil {
		return nil, err
	}

	root, err := resolve(schema)
	if err != nil {
		return nil, err
	}

	f := &Form{root: root}
	var top object
	if err := top.read(schema); err != nil {
		return nil, fmt.Errorf("the schema is not understood: %w", err)
	}
	f.object = top.kindOf() == "object"
	return f, f.add(schema, Field{Required: true}, 0)
}

// SelfContained returns an error if a schema has references. Checking a value against {"$ref": "#"}
// recurses until the stack overflows and the process dies. Call it before using an untrusted
// schema.
func SelfContained(schema json.RawMessage) error {
	var any any
	if err := json.Unmarshal(schema, &any); err != nil {
		return fmt.Errorf("the schema is no JSON: %w", err)
	}
	if refers(any) {
		return errors.New("the schema refers to another with $ref; write out what is meant in its place")
	}
	return nil
}

// refers reports whether a schema contains a reference.
func refers(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if key == "$ref" || key == "$dynamicRef" || refers(value) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, refers)
	}
	return false
}

func resolve(schema json.RawMessage) (*jsonschema.Resolved, error) {
	var s jsonschema.Schema
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, fmt.Errorf("the schema is not understood: %w", err)
	}

	// The validator rejects every answer if it does not know the schema version. The keywords that
	// forms use are the same in all versions.
	if !strings.Contains(s.Schema, "draft-07") {
		s.Schema = ""
	}

	resolved, err := s.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("the schema cannot be used: %w", err)
	}
	return resolved, nil
}

// kindOf returns the type that a schema requires, ignoring null.
func (o object) kindOf() string {
	switch t := o.Type.(type) {
	case string:
		return t
	case []any:
		for _, one := range t {
			if name, ok := one.(string); ok && name != "null" {
				return name
			}
		}
	}

	if len(o.Properties) > 0 {
		return "object"
	}
	return ""
}

// add adds the fields of a schema: one for each property, or a single one for the schema itself.
func (f *Form) add(schema json.RawMessage, at Field, depth int) error {
	var o object
	if err := o.read(schema); err != nil {
		return fmt.Errorf("the schema of %s is not understood: %w", at.name(), err)
	}

	if o.kindOf() != "object" || len(o.Properties) == 0 || depth == maxDepth {
		return f.addField(schema, o, at)
	}

	var properties map[string]json.RawMessage
	if err := json.Unmarshal(o.Properties, &properties); err != nil {
		return fmt.Errorf("the properties of %s are not understood: %w", at.name(), err)
	}

	names, err := keys(o.Properties)
	if err != nil {
		return err
	}

	for _, name := range names {
		required := slices.Contains(o.Required, name)
		inner := Field{
			Path: append(slices.Clone(at.Path), name), Required: at.Required && required,
			requires: append(slices.Clone(at.requires), required),
		}
		if err := f.add(properties[name], inner, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (f *Form) addField(schema json.RawMessage, o object, at Field) error {
	var err error
	if at.check, err = resolve(schema); err != nil {
		return fmt.Errorf("%s: %w", at.name(), err)
	}

	at.Title, at.Description, at.Enum, at.Default, at.Kind = o.Title, o.Description, o.Enum, o.Default, JSON
	switch o.kindOf() {
	case "string":
		at.Kind = Text
	case "integer":
		at.Kind = Integer
	case "number":
		at.Kind = Number
	case "boolean":
		at.Kind = Boolean
	case "array":
		if o.ofTexts() {
			at.Kind = List
		}
	}

	f.fields = append(f.fields, at)
	return nil
}

// keys returns the names in a JSON object, in their order.
func keys(raw json.RawMessage) ([]string, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil { // the brace
		return nil, err
	}

	var out []string
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}

		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		if text, ok := name.(string); ok && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out, nil
}

// Fields returns the fields in the order of the schema.
func (f *Form) Fields() []Field { return f.fields }

// Name returns the path joined with dots: "address.city".
func (f Field) Name() string { return strings.Join(f.Path, ".") }

func (f Field) name() string {
	if len(f.Path) == 0 {
		return "the answer"
	}
	return f.Name()
}

// Answer converts one line of input to an answer. The line is JSON, or the text of a single value.
func (f *Form) Answer(text string) (json.RawMessage, error) {
	text = strings.TrimSpace(text)
	if f.object && strings.HasPrefix(text, "{") || !f.object && strings.HasPrefix(text, `"`) && json.Valid([]byte(text)) {
		return json.RawMessage(text), nil
	}

	wanted := f.fields
	if required := slices.DeleteFunc(slices.Clone(f.fields), func(one Field) bool { return !one.Required }); len(required) == 1 {
		wanted = required
	}
	if len(wanted) != 1 {
		return nil, fmt.Errorf("it asks for %s: answer with JSON such as %s", f.names(), f.example())
	}

	value, err := wanted[0].Value(text)
	if err != nil {
		return nil, err
	}
	return f.Assemble(map[string]json.RawMessage{wanted[0].Name(): value})
}

func (f *Form) names() string {
	var out []string
	for _, one := range f.fields {
		out = append(out, one.Name())
	}
	return strings.Join(out, ", ")
}

// example returns an example answer with the required fields.
func (f *Form) example() string {
	values := map[string]json.RawMessage{}
	for _, one := range f.fields {
		if !one.Required {
			continue
		}
		switch {
		case one.Default != nil:
			values[one.Name()] = one.Default
		case len(one.Enum) > 0:
			values[one.Name()] = one.Enum[0]
		default:
			values[one.Name()] = examples[one.Kind]
		}
	}

	raw, err := f.Assemble(values)
	if err != nil {
		return "{…}"
	}
	return "'" + string(raw) + "'"
}

var examples = map[Kind]json.RawMessage{
	Text: json.RawMessage(`"…"`), Integer: json.RawMessage(`1`), Number: json.RawMessage(`1.5`), Boolean: json.RawMessage(`true`),
	List: json.RawMessage(`["…"]`), JSON: json.RawMessage(`{}`),
}

// Value converts typed text to a JSON value and checks it. The error describes the expected value.
func (f Field) Value(text string) (json.RawMessage, error) {
	text = strings.TrimSpace(text)
	value, ok := f.choice(text)
	if !ok {
		var err error
		if value, err = f.parse(text); err != nil {
			return nil, err
		}
	}

	var decoded any
	if err := json.Unmarshal(value, &decoded); err != nil {
		return nil, fmt.Errorf("%s is no %s", strconv.Quote(text), f.Kind)
	}
	if err := f.check.Validate(decoded); err != nil {
		return nil, errors.New(f.explain(err))
	}
	return value, nil
}

// choice returns the enum value that a text selects by its text or its number.
func (f Field) choice(text string) (json.RawMessage, bool) {
	for _, v := range f.Enum {
		if strings.EqualFold(Plain(v), text) {
			return v, true
		}
	}

	// Compare numbers last, so that a numeric enum value selects itself.
	if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= len(f.Enum) {
		return f.Enum[n-1], true
	}
	return nil, false
}

// Plain returns a JSON value for display: strings without quotes.
func Plain(v json.RawMessage) string {
	var text string
	if json.Unmarshal(v, &text) == nil {
		return text
	}
	return string(v)
}

var booleans = map[string]string{"yes": "true", "y": "true", "true": "true", "no": "false", "n": "false", "false": "false"}

func (f Field) parse(text string) (json.RawMessage, error) {
	switch f.Kind {
	case Text:
		return json.Marshal(text)
	case Boolean:
		word, ok := booleans[strings.ToLower(text)]
		if !ok {
			return nil, errors.New("it has to be yes or no")
		}
		return json.RawMessage(word), nil
	case Integer, Number:
		if _, err := strconv.ParseFloat(text, 64); err != nil || !json.Valid([]byte(text)) {
			return nil, fmt.Errorf("it has to be a %s", f.Kind)
		}
	case List:
		if !strings.HasPrefix(text, "[") {
			items := []string{}
			for item := range strings.SplitSeq(text, ",") {
				if item = strings.TrimSpace(item); item != "" {
					items = append(items, item)
				}
			}
			return json.Marshal(items)
		}
	}

	if !json.Valid([]byte(text)) {
		return nil, errors.New("it has to be JSON")
	}
	return json.RawMessage(text), nil
}

// Assemble returns the answer for a map from field names to values.
func (f *Form) Assemble(values map[string]json.RawMessage) (json.RawMessage, error) {
	if !f.object {
		return values[""], nil
	}

	out := map[string]any{}
	for _, one := range f.fields {
		value, ok := values[one.Name()]
		if !ok {
			continue
		}
		if len(one.Path) == 0 { // an object without known properties
			return value, nil
		}

		at := out
		for _, name := range one.Path[:len(one.Path)-1] {
			inner, ok := at[name].(map[string]any)
			if !ok {
				inner = map[string]any{}
				at[name] = inner
			}
			at = inner
		}
		at[one.Path[len(one.Path)-1]] = value
	}
	return json.Marshal(out)
}

// Check validates an answer. It returns the answer in canonical form, or its problems.
func (f *Form) Check(answer json.RawMessage) (json.RawMessage, []Problem) {
	var decoded, exact any
	dec := json.NewDecoder(bytes.NewReader(answer))
	dec.UseNumber() // preserves large numbers
	if err := dec.Decode(&exact); err != nil {
		return nil, []Problem{{Message: "it is no JSON"}}
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, []Problem{{Message: "it is more than one JSON value"}}
	}
	if err := json.Unmarshal(answer, &decoded); err != nil {
		return nil, []Problem{{Message: "it is no JSON"}}
	}

	var problems []Problem
	for _, one := range f.fields {
		if message := one.problem(decoded); message != "" {
			problems = append(problems, Problem{one.Name(), message})
		}
	}

	// Check the rest of the schema: unknown names and conditions between fields.
	if len(problems) == 0 {
		if err := f.root.Validate(decoded); err != nil {
			problems = append(problems, Problem{Message: reason(err)})
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}

	out, err := json.Marshal(exact)
	if err != nil {
		return nil, []Problem{{Message: err.Error()}}
	}
	return out, nil
}

// problem returns an error message for a field of an answer, or "" if the field is valid.
func (f Field) problem(answer any) string {
	v := answer
	for level, name := range f.Path {
		object, ok := v.(map[string]any)
		if !ok {
			return "" // the check of the whole answer reports a missing object
		}
		if v, ok = object[name]; !ok {
			if slices.Contains(f.requires[level:], false) {
				return ""
			}
			return "it is missing"
		}
	}

	if err := f.check.Validate(v); err != nil {
		return f.explain(err)
	}
	return ""
}

// explain returns a clause that describes the expected value.
func (f Field) explain(err error) string {
	if len(f.Enum) > 0 {
		var values []string
		for _, v := range f.Enum {
			values = append(values, Plain(v))
		}
		return "it has to be one of " + strings.Join(values, ", ")
	}

	why := reason(err)
	if strings.HasPrefix(why, "type:") {
		switch f.Kind {
		case JSON:
		case List:
			return "it has to be a list of texts"
		case Boolean:
			return "it has to be yes or no (true or false)"
		default:
			return "it has to be a " + string(f.Kind)
		}
	}
	return why
}

// reason returns the innermost error of a validator error. The outer ones contain parts of the
// schema.
func reason(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
