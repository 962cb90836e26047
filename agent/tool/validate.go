package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"rouse/internal/jsonread"
	"rouse/internal/text"
)

// validate checks arguments against the schema of a tool and corrects harmless mistakes of models
// (OSA-11): numbers in quotes, null or "" for an absent argument.
func (t Tool) validate(raw json.RawMessage) (json.RawMessage, error) {
	m, err := t.coerce(raw)
	if err != nil {
		return nil, err
	}
	return json.Marshal(m)
}

// coerce is validate with the arguments decoded.
func (t Tool) coerce(raw json.RawMessage) (map[string]any, error) {
	v, err := decode(raw)
	// Some models write the whole object as a JSON string.
	if text, ok := v.(string); ok && err == nil {
		v, err = decode(json.RawMessage(text))
	}
	if err != nil {
		return nil, Refuse(KindInvalidArgs, "the arguments are not JSON: %v", err).WithField("", "a JSON object")
	}
	if v == nil {
		v = map[string]any{}
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, Refuse(KindInvalidArgs, "the arguments must be an object").WithField("", "a JSON object")
	}

	c := argumentCheck{synonyms: t.spec.Synonyms, asJSON: len(t.spec.Schema) > 0}
	out := c.object("", t.schema, m)
	if len(c.wrong) > 0 {
		return nil, c.wrong[0].refusal() // one at a time is what a model can follow
	}
	return out, nil
}

func decode(raw json.RawMessage) (any, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, nil
	}

	var v any
	err := jsonread.UnmarshalNumbers(raw, &v) // large ids stay exact
	return v, err
}

// argumentCheck collects what does not fit.
type argumentCheck struct {
	synonyms [][2]string
	asJSON   bool // a model sends a value of any kind as JSON in a text
	wrong    []ArgumentError
}

// named renames arguments that have the name of a synonym (UNI-01, UNI-04). One that is given under
// both names stays, and is refused.
func (c *argumentCheck) named(schema *jsonschema.Schema, m map[string]any) map[string]any {
	out := m
	for _, pair := range c.synonyms {
		for i, name := range pair {
			value, given := m[name]
			_, taken := m[pair[1-i]]
			if given && !taken && schema.Properties[name] == nil && schema.Properties[pair[1-i]] != nil {
				out = maps.Clone(out)
				delete(out, name)
				out[pair[1-i]] = value
			}
		}
	}
	return out
}

func (c *argumentCheck) bad(field, message, expected string) {
	c.wrong = append(c.wrong, ArgumentError{field, message, expected})
}

// object checks an object against its schema, and converts its values.
func (c *argumentCheck) object(path string, schema *jsonschema.Schema, m map[string]any) map[string]any {
	m = c.named(schema, m)
	out := make(map[string]any, len(m))
	var meant []string                                // arguments that were misspelled, which are not missing besides
	for _, key := range slices.Sorted(maps.Keys(m)) { // so that the same fault is always reported first
		field := join(path, key)
		p, known := schema.Properties[key]
		if !known {
			if isClosed(schema) {
				names := slices.Sorted(maps.Keys(schema.Properties))
				meant = append(meant, text.Nearest(key, names))
				c.bad(field, fmt.Sprintf("there is no argument %q%s", key, hint(key, names)), "one of "+strings.Join(names, ", "))
				continue
			}

			out[key] = c.value(field, additional(schema), m[key])
			continue
		}

		required := slices.Contains(schema.Required, key)
		// Models fill in optional arguments that they do not use with null or "".
		if m[key] == nil || (m[key] == "" && !required) {
			continue
		}

		out[key] = c.value(field, p, m[key])
	}

	for _, key := range schema.Required {
		_, given := out[key]
		if given || slices.Contains(meant, key) {
			continue
		}
		// Models cannot send null (see modelSchema), and leave such an argument out.
		if p := schema.Properties[key]; p != nil && allowsNull(p) {
			out[key] = nil
		} else {
			c.bad(join(path, key), fmt.Sprintf("the argument %q is missing", join(path, key)), describe(schema.Properties[key]))
		}
	}

	return out
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// isClosed reports whether a schema allows no other properties than its own.
func isClosed(s *jsonschema.Schema) bool {
	return s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil
}

// additional is the schema for properties that a schema does not name.
func additional(s *jsonschema.Schema) *jsonschema.Schema {
	if s.AdditionalProperties == nil {
		return &jsonschema.Schema{}
	}
	return s.AdditionalProperties
}

// value checks one value against its schema, and converts it.
func (c *argumentCheck) value(field string, s *jsonschema.Schema, v any) any {
	if _, later := v.(Unknown); later {
		return v
	}

	types := acceptedTypes(s)
	fitted, ok := coerceType(types, v)
	switch {
	case len(types) == 0:
		fitted = c.anyValue(s, v)
	case !ok && len(typesOf(s)) == 0: // the whole schema says why no choice fits
		return v
	case !ok:
		c.bad(field, fmt.Sprintf("the argument %q must be %s, not %s", field, describe(s), display(v)), describe(s))
		return v
	}
	v = fitted
	if len(s.Enum) > 0 {
		i := slices.IndexFunc(s.Enum, func(e any) bool { return fmt.Sprint(e) == fmt.Sprint(v) })
		if i < 0 {
			c.bad(field, fmt.Sprintf("the argument %q must be %s, not %s", field, describe(s), display(v)), describe(s))
			return v
		}
		v = s.Enum[i] // a number, where a model could only send its text
	}

	switch inner := v.(type) {
	case []any:
		if s.Items == nil {
			return v
		}
		for i := range inner {
			inner[i] = c.value(fmt.Sprintf("%s[%d]", field, i), s.Items, inner[i])
		}
	case map[string]any:
		if s.Properties != nil || isClosed(s) || isTyped(s.AdditionalProperties) {
			return c.object(field, s, inner)
		}
	}

	return v
}

// anyValue converts a text to the list or object that it holds, where models are asked for JSON in a text.
func (c *argumentCheck) anyValue(s *jsonschema.Schema, v any) any {
	text, ok := v.(string)
	if !ok || !c.asJSON || len(s.Enum) > 0 || s.Const != nil {
		return v
	}
	if inner, ok := coerceType([]string{typeArray, typeObject}, text); ok {
		return inner
	}
	return v
}

// coerceType converts a value to the first of the types that it can stand for.
func coerceType(types []string, v any) (any, bool) {
	for _, t := range types {
		if isType(t, v) {
			if t == typeInteger {
				return integer(v.(json.Number))
			}
			return v, true
		}
	}

	// Models often put numbers, lists and objects in quotes.
	text, ok := v.(string)
	if !ok {
		return nil, false
	}

	for _, t := range types {
		switch t {
		case typeInteger, typeNumber, typeBoolean, typeArray, typeObject:
			if inner, err := decode(json.RawMessage(strings.TrimSpace(text))); err == nil && inner != nil && isType(t, inner) {
				if t == typeInteger {
					return integer(inner.(json.Number))
				}
				return inner, true
			}
		}
	}

	return nil, false
}

func isType(t string, v any) bool {
	switch v := v.(type) {
	case nil:
		return t == typeNull
	case string:
		return t == typeString
	case bool:
		return t == typeBoolean
	case json.Number:
		if t == typeInteger {
			_, ok := integer(v)
			return ok
		}
		return t == typeNumber
	case []any:
		return t == typeArray
	case map[string]any:
		return t == typeObject
	}
	return false
}

// integer accepts 3, 3.0 and 3e0 as the same number.
func integer(n json.Number) (any, bool) {
	// big.Rat would spell out 1e999999999 in full, and so fill the memory.
	if len(n) > 40 || hasHugeExponent(n.String()) {
		return nil, false
	}

	r, ok := new(big.Rat).SetString(n.String())
	if !ok || !r.IsInt() || !r.Num().IsInt64() {
		return nil, false
	}
	return json.Number(r.Num().String()), true
}

// isTyped reports whether a schema has a type. A map of free values has none.
func isTyped(s *jsonschema.Schema) bool {
	return s != nil && (s.Type != "" || len(s.Types) > 0)
}

// hasHugeExponent reports whether an exponent would make a number of very many digits.
func hasHugeExponent(n string) bool {
	i := strings.IndexAny(n, "eE")
	if i < 0 {
		return false
	}
	exponent, err := strconv.Atoi(n[i+1:])
	return err != nil || exponent > 40 || exponent < -40
}

// describe says what a value must be.
func describe(s *jsonschema.Schema) string {
	if s == nil {
		return "a value"
	}

	if len(s.Enum) > 0 {
		var values []string
		for _, e := range s.Enum {
			values = append(values, fmt.Sprint(e))
		}
		return "one of " + strings.Join(values, ", ")
	}

	// A Go pointer or map is null or something else: the message names the something else.
	types := slices.DeleteFunc(typesOf(s), func(t string) bool { return t == typeNull })
	var words []string
	for _, t := range types {
		words = append(words, describeType(t))
	}
	if len(words) == 0 {
		return "a value"
	}
	return strings.Join(words, " or ")
}

func describeType(t string) string {
	switch t {
	case typeInteger:
		return "a whole number"
	case typeArray, typeObject:
		return "an " + t
	}
	return "a " + t
}

// display prints a value briefly.
func display(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return text.Truncate(string(raw), 60)
}

// hint ends a message about a wrong name with the one that was probably meant, if one is similar.
func hint(wrong string, known []string) string {
	if ask := text.DidYouMean(wrong, known); ask != "" {
		return "; " + ask
	}
	return ""
}
