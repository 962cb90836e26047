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

// validate checks arguments against the schema of the tool. It corrects harmless errors of models,
// such as quoted numbers, and null or "" for an omitted argument. It returns a *Refusal if the
// arguments are invalid.
func (t Tool) validate(raw json.RawMessage) (json.RawMessage, error) {
	m, err := t.coerce(raw)
	if err != nil {
		return nil, err
	}
	return json.Marshal(m)
}

// coerce is like validate but returns the decoded arguments.
func (t Tool) coerce(raw json.RawMessage) (map[string]any, error) {
	v, err := decode(raw)
	// Some models encode the whole object as a JSON string.
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
		return nil, c.wrong[0].refusal() // models handle one error at a time best
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

// argumentCheck collects the errors in the arguments of a call.
type argumentCheck struct {
	synonyms [][2]string
	asJSON   bool // values of any type may be sent as JSON in a string
	wrong    []ArgumentError
}

// named returns the arguments with synonyms renamed to the names in the schema. It does not rename
// an argument that is given under both names, so that the check reports an error.
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

// object checks an object against its schema and returns it with converted values.
func (c *argumentCheck) object(path string, schema *jsonschema.Schema, m map[string]any) map[string]any {
	m = c.named(schema, m)
	out := make(map[string]any, len(m))
	var meant []string                                // misspelled arguments, which are not reported as missing too
	for _, key := range slices.Sorted(maps.Keys(m)) { // sorted, so that the first error is always the same
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
		// Models often send null or "" for optional arguments that they do not use.
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
		// Models cannot send null (see modelSchema), so they omit such an argument.
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

// isClosed reports whether a schema allows only the properties that it names.
func isClosed(s *jsonschema.Schema) bool {
	return s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil
}

// additional returns the schema for properties that a schema does not name.
func additional(s *jsonschema.Schema) *jsonschema.Schema {
	if s.AdditionalProperties == nil {
		return &jsonschema.Schema{}
	}
	return s.AdditionalProperties
}

// value checks one value against its schema and returns the converted value.
func (c *argumentCheck) value(field string, s *jsonschema.Schema, v any) any {
	if _, later := v.(Unknown); later {
		return v
	}

	types := acceptedTypes(s)
	fitted, ok := coerceType(types, v)
	switch {
	case len(types) == 0:
		fitted = c.anyValue(s, v)
	case !ok && len(typesOf(s)) == 0: // validation with the whole schema reports the error
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
		v = s.Enum[i] // converts a string to the allowed number
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

// anyValue converts a string that contains a JSON list or object to that value, if asJSON is set
// and the schema does not list values. Otherwise it returns v.
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

// coerceType converts a value to the first type that it can represent. It reports false if the
// value fits no type.
func coerceType(types []string, v any) (any, bool) {
	for _, t := range types {
		if isType(t, v) {
			if t == typeInteger {
				return integer(v.(json.Number))
			}
			return v, true
		}
	}

	// Models often quote numbers, lists and objects.
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

// integer returns the canonical form of a whole number. It accepts 3, 3.0 and 3e0 as the same
// number, and reports false if n is not an int64.
func integer(n json.Number) (any, bool) {
	// big.Rat would expand 1e999999999 and exhaust the memory.
	if len(n) > 40 || hasHugeExponent(n.String()) {
		return nil, false
	}

	r, ok := new(big.Rat).SetString(n.String())
	if !ok || !r.IsInt() || !r.Num().IsInt64() {
		return nil, false
	}
	return json.Number(r.Num().String()), true
}

// isTyped reports whether a schema names a type. The schema of arbitrary values does not.
func isTyped(s *jsonschema.Schema) bool {
	return s != nil && (s.Type != "" || len(s.Types) > 0)
}

// hasHugeExponent reports whether the exponent of a number is out of the range -40 to 40.
func hasHugeExponent(n string) bool {
	i := strings.IndexAny(n, "eE")
	if i < 0 {
		return false
	}
	exponent, err := strconv.Atoi(n[i+1:])
	return err != nil || exponent > 40 || exponent < -40
}

// describe returns a description of the values that a schema allows.
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

	// Pointers and maps in Go also allow null. The message omits null.
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

// display returns a short text of a value.
func display(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return text.Truncate(string(raw), 60)
}

// hint returns a message suffix that suggests the most similar known name, or "" if no name is
// similar.
func hint(wrong string, known []string) string {
	if ask := text.DidYouMean(wrong, known); ask != "" {
		return "; " + ask
	}
	return ""
}
