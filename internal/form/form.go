// Package form reads from a JSON Schema what a person is to be asked, field by field, makes values of
// what they type, and says of each field what is wrong with an answer.
//
// # Design
//
// Schemas come from models and from skills, so they are data: bounded in size, and without references,
// which could make a check run without end. Whether an answer fits is said by google/jsonschema-go
// alone; this package says of which field, and in words.
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

// Bounds of a schema.
const (
	maxSchema = 16 << 10 // bytes
	maxDepth  = 8        // objects within objects
)

// Form is what a person is asked.
type Form struct {
	fields []Field
	root   *jsonschema.Resolved
	object bool // the answer is an object; else it is the one field's value
}

// Field is one value that a person is asked for.
type Field struct {
	Path        []string // names of properties, from the outside; none: the answer is this value
	Kind        Kind
	Title       string
	Description string
	Enum        []json.RawMessage // the values to choose of; none: any
	Default     json.RawMessage   // nil: there is none
	Required    bool

	requires []bool // of each name of the path: whether the object before it has to have it
	check    *jsonschema.Resolved
}

// Kind is what is typed for a field.
type Kind string

// The kinds.
const (
	Text    Kind = "text"
	Integer Kind = "whole number"
	Number  Kind = "number"
	Boolean Kind = "yes or no"
	List    Kind = "list" // of texts
	JSON    Kind = "JSON" // anything else
)

// Problem is what is wrong with one field of an answer.
type Problem struct {
	Field   string `json:"field"` // as Field.Name; "" is the answer as a whole
	Message string `json:"message"`
}

// String is the problem as a clause.
func (p Problem) String() string {
	if p.Field == "" {
		return p.Message
	}
	return p.Field + ": " + p.Message
}

// object is the part of a schema that a person is asked by.
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

// read reads a schema; true and false are schemas, too, which say nothing of a form.
func (o *object) read(schema json.RawMessage) error {
	if s := string(bytes.TrimSpace(schema)); s == "true" || s == "false" {
		return nil
	}
	return json.Unmarshal(schema, o)
}

// ofTexts reports whether the items of an array are texts.
func (o object) ofTexts() bool {
	var item object
	return len(o.Items) > 0 && item.read(o.Items) == nil && item.kindOf() == "string"
}

// Parse reads a schema. The error says what no form can be made of.
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

// SelfContained refuses a schema that refers to another, or to itself: a check of {"$ref": "#"} has no end, and ends the
// process whose stack it fills. Schemas of strangers are held to this before a value is held to them.
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

// refers reports whether a schema has a reference anywhere.
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

	// Of other versions of JSON Schema the validator would take no answer at all; what a form can say is the same in all.
	if !strings.Contains(s.Schema, "draft-07") {
		s.Schema = ""
	}

	resolved, err := s.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("the schema cannot be used: %w", err)
	}
	return resolved, nil
}

// kindOf is the type that a schema asks for, null aside.
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

// add adds the fields of a schema: those of its properties, or the one that it is itself.
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

// keys are the names in a JSON object, in their order.
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

// Fields are what is asked, in the order of the schema.
func (f *Form) Fields() []Field { return f.fields }

// Name is the path with dots: "address.city".
func (f Field) Name() string { return strings.Join(f.Path, ".") }

func (f Field) name() string {
	if len(f.Path) == 0 {
		return "the answer"
	}
	return f.Name()
}

// Answer returns the answer that a person typed in one line: JSON, or a text for a single value.
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

// example is an answer with the kinds of the fields that are required.
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

// Value makes the JSON of a value of what a person typed, and checks it. The error says what it has to be.
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

// choice is the value of an enumeration that a text names, by its word or its number.
func (f Field) choice(text string) (json.RawMessage, bool) {
	for _, v := range f.Enum {
		if strings.EqualFold(Plain(v), text) {
			return v, true
		}
	}

	// After the words, so that a value that is itself a number means itself.
	if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= len(f.Enum) {
		return f.Enum[n-1], true
	}
	return nil, false
}

// Plain is a JSON value as a person reads it: a text without quotes.
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

// Assemble makes the JSON of an answer of values by the names of their fields.
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
		if len(one.Path) == 0 { // an object of which nothing is known
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

// Check returns an answer in canonical form, or its problems.
func (f *Form) Check(answer json.RawMessage) (json.RawMessage, []Problem) {
	var decoded, exact any
	dec := json.NewDecoder(bytes.NewReader(answer))
	dec.UseNumber() // large numbers stay what they are
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

	// What no field says: names that are not there, conditions between fields.
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

// problem is what is wrong with a field in an answer, "" for nothing.
func (f Field) problem(answer any) string {
	v := answer
	for level, name := range f.Path {
		object, ok := v.(map[string]any)
		if !ok {
			return "" // the check of the whole says that no object is there
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

// explain says what a field has to be.
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

// reason is the innermost part of a message of the validator, which names the parts of the schema before it.
func reason(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
