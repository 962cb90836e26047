package skills

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"rouse/internal/text"
)

// report collects the problems of one file.
type report struct {
	file     string
	problems []Problem
}

// maxProblems is the maximum number of problems per file. It stops hostile input.
const maxProblems = 500

func (r *report) full() bool { return len(r.problems) > maxProblems }

func (r *report) add(at value, field string, rule Rule, warning bool, format string, args ...any) {
	if r.full() {
		return
	}
	// The last problem is an error, because the omitted problems may include an error.
	if len(r.problems) == maxProblems {
		field, rule, warning = "", RuleLimit, false
		format, args = "has more than %d problems; mend these first", []any{maxProblems}
	}
	r.problems = append(r.problems, Problem{File: r.file, Line: at.line, Column: at.column, Field: field, Rule: rule, Warning: warning,
		Message: fmt.Sprintf(format, args...)})
}

// object is a JSON object that reports its problems.
type object struct {
	*report
	value value
	path  string // path of the object in the file; "" for the whole file
}

// fail reports an error of a member. If the member is missing, the error has the position of the
// object.
func (o *object) fail(key string, rule Rule, format string, args ...any) {
	o.add(o.at(key), join(o.path, key), rule, false, format, args...)
}

// warn reports a warning about a member.
func (o *object) warn(key string, rule Rule, format string, args ...any) {
	o.add(o.at(key), join(o.path, key), rule, true, format, args...)
}

// at returns a member, or the object itself if the member is missing.
func (o *object) at(key string) value {
	if v, ok := o.value.lookup(key); ok {
		return v
	}
	return o.value
}

// objects returns the items of the list in the given member.
func (o *object) objects(list string) (out []*object) {
	all, _ := o.value.lookup(list)
	for i, item := range all.items {
		out = append(out, &object{report: o.report, value: item, path: fmt.Sprintf("%s[%d]", join(o.path, list), i)})
	}
	return out
}

// decode reads the members of an object into the fields of a struct and warns about unknown
// members. It reports every missing or invalid member. These tags of a field describe its member:
//
//	json   name of the member
//	write  makes the member required; the text describes a valid value in messages.
//	       If the text is empty, messages list the words of the tag "of".
//	of     allowed words for the member, or for each list item
//	root   root type of a JSON Schema
//
// A member may be null if it is optional or its field is a pointer. A number must be a positive
// integer, unless its field is a float64.
func (o *object) decode(into any) {
	s := reflect.ValueOf(into).Elem()
	var known []string
	for _, f := range reflect.VisibleFields(s.Type()) {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if key == "" {
			continue
		}
		known = append(known, key)

		field, words := s.FieldByIndex(f.Index), f.Tag.Get("of")
		need, needed := f.Tag.Lookup("write")
		if need == "" {
			need = "one of " + strings.ReplaceAll(words, " ", ", ")
		}
		v, ok := o.value.lookup(key)
		switch {
		case !ok && needed:
			o.fail(key, RuleFieldMissing, "is missing; write %s", need)
		case !ok, v.kind == kindNull && (!needed || field.Kind() == reflect.Pointer):
		case v.kind == kindText && field.Kind() == reflect.String && needed && words == "" && strings.TrimSpace(v.text) == "":
			o.fail(key, RuleFieldMissing, "is empty; write %s", need)
			field.SetString(v.text)
		case key == "lifecycleHooks":
			field.Set(reflect.ValueOf(o.hooks(v)))
		default:
			o.read(v, join(o.path, key), f.Tag, field)
		}
	}

	for _, m := range o.value.members {
		if o.full() {
			return
		}
		if !slices.Contains(known, m.key) {
			o.add(value{line: m.line, column: m.column}, join(o.path, m.key), RuleFieldUnknown, true, "is not a field that is known here, and is passed over%s", near(m.key, known))
		}
	}
}

// read reads a value into a field and reports whether the value is valid.
func (r *report) read(v value, path string, tag reflect.StructTag, into reflect.Value) bool {
	if into.Kind() == reflect.Pointer {
		one := reflect.New(into.Type().Elem())
		ok := r.read(v, path, tag, one.Elem())
		if ok {
			into.Set(one)
		}
		return ok
	}

	fail := func(rule Rule, format string, args ...any) bool {
		r.add(v, path, rule, false, format, args...)
		return false
	}
	raw := into.Type() == reflect.TypeFor[json.RawMessage]()
	kind := map[reflect.Kind]jsonKind{reflect.String: kindText, reflect.Bool: kindBoolean, reflect.Int: kindNumber, reflect.Float64: kindNumber,
		reflect.Slice: kindList, reflect.Struct: kindObject}[into.Kind()]
	if raw {
		kind = kindObject
	}
	if v.kind != kind {
		return fail(RuleFieldType, "is %s, and must be %s", said(v), kind)
	}

	switch {
	case raw:
		into.SetBytes(v.raw)
		return r.checkSchema(v, path, tag.Get("root"))
	case kind == kindText:
		into.SetString(v.text)
		if words := strings.Fields(tag.Get("of")); len(words) > 0 && !slices.Contains(words, v.text) {
			return fail(RuleFieldValue, "%s", noneOf(v.text, words))
		}
	case kind == kindBoolean:
		into.SetBool(v.text == "true")
	case into.Kind() == reflect.Int:
		n, err := strconv.Atoi(v.text)
		if err != nil || n < 1 {
			return fail(RuleFieldValue, "is %s, and must be a whole number of 1 or more", v.text)
		}
		into.SetInt(int64(n))
	case kind == kindNumber:
		n, err := strconv.ParseFloat(v.text, 64)
		if err != nil {
			return fail(RuleFieldValue, "is %s, which is out of range", v.text)
		}
		into.SetFloat(n)
	case kind == kindObject:
		(&object{report: r, value: v, path: path}).decode(into.Addr().Interface())
	default:
		r.readList(v, path, tag, into)
	}
	return true
}

// readList reads the valid items of a list.
func (r *report) readList(v value, path string, tag reflect.StructTag, into reflect.Value) {
	into.Set(reflect.MakeSlice(into.Type(), 0, 0))
	for i, item := range v.items {
		one, at := reflect.New(into.Type().Elem()).Elem(), fmt.Sprintf("%s[%d]", path, i)
		if item.kind == kindText && one.Kind() == reflect.String && strings.TrimSpace(item.text) == "" {
			r.add(item, at, RuleFieldValue, false, "is empty; remove it")
		} else if r.read(item, at, tag, one) {
			into.Set(reflect.Append(into, one))
		}
	}
}

// said describes a value for a message.
func said(v value) string {
	switch v.kind {
	case kindBoolean:
		return v.text
	case kindText, kindNumber:
		return fmt.Sprintf("%s (%s)", v.kind, text.Truncate(string(v.raw), 40))
	}
	return string(v.kind)
}

// noneOf returns the message that word is not one of the known words, with a suggestion.
func noneOf(word string, known []string) string {
	return fmt.Sprintf("%q is none of %s%s", text.Truncate(word, 40), strings.Join(known, ", "), near(word, known))
}

// near returns a "did you mean" suffix for a message, or "" if no known word is similar.
func near(word string, known []string) string {
	if ask := text.DidYouMean(word, known); ask != "" {
		return "; " + ask
	}
	return ""
}
