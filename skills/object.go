package skills

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rouse/internal/text"
)

// report gathers the problems of one file.
type report struct {
	file     string
	problems []Problem
}

// maxProblems bounds what is reported of one file: a stranger may have filled it.
const maxProblems = 500

func (r *report) full() bool { return len(r.problems) > maxProblems }

func (r *report) add(at value, field string, rule Rule, warning bool, format string, args ...any) {
	if r.full() {
		return
	}
	// An error, for among the rest there may be one.
	if len(r.problems) == maxProblems {
		r.problems = append(r.problems, Problem{File: r.file, Line: at.line, Column: at.column, Rule: RuleLimit, Message: fmt.Sprintf("has more than %d problems; mend these first", maxProblems)})
		return
	}
	r.problems = append(r.problems, Problem{File: r.file, Line: at.line, Column: at.column, Field: field, Rule: rule, Warning: warning, Message: fmt.Sprintf(format, args...)})
}

// object reads the members of one JSON object. It reports all that is missing, of another type or out of
// its range, and knows at its end which keys nobody asked for.
type object struct {
	*report
	value value
	path  string // "" of the whole file
	asked []string
}

// fail reports what is wrong with a member; its line is that of the member, or of the object that lacks it.
func (o *object) fail(key string, rule Rule, format string, args ...any) {
	o.add(o.at(key), join(o.path, key), rule, false, format, args...)
}

// warn reports what is odd about a member.
func (o *object) warn(key string, rule Rule, format string, args ...any) {
	o.add(o.at(key), join(o.path, key), rule, true, format, args...)
}

func (o *object) at(key string) value {
	if v, ok := o.value.lookup(key); ok {
		return v
	}
	return o.value
}

// get is a member of a kind. need is how it is to be written, where it has to be there, and "" where it
// need not: then null is as good as nothing.
func (o *object) get(key string, kind jsonKind, need string) (value, bool) {
	o.asked = append(o.asked, key)
	v, ok := o.value.lookup(key)
	switch {
	case !ok && need != "":
		o.fail(key, RuleFieldMissing, "is missing; write %s", need)
		return value{}, false
	case !ok, v.kind == kindNull && need == "":
		return value{}, false
	case v.kind != kind:
		o.fail(key, RuleFieldType, "is %s, and must be %s", said(v), kind)
		return value{}, false
	}
	return v, true
}

// said is a value in a message.
func said(v value) string {
	switch v.kind {
	case kindBoolean:
		return v.text
	case kindText, kindNumber:
		return fmt.Sprintf("%s (%s)", v.kind, text.Truncate(string(v.raw), 40))
	}
	return string(v.kind)
}

// text is a member that is a text. One that has to be there is not empty.
func (o *object) text(key, need string) string {
	v, ok := o.get(key, kindText, need)
	if ok && need != "" && strings.TrimSpace(v.text) == "" {
		o.fail(key, RuleFieldMissing, "is empty; write %s", need)
	}
	return v.text
}

// nullableText is a text, or null; the key itself has to be there.
func (o *object) nullableText(key, need string) *string {
	if v, ok := o.value.lookup(key); ok && v.kind == kindNull {
		o.asked = append(o.asked, key)
		return nil
	}
	if v, ok := o.get(key, kindText, need); ok {
		return &v.text
	}
	return nil
}

// flag is a member that is true or false.
func (o *object) flag(key, need string) bool {
	v, _ := o.get(key, kindBoolean, need)
	return v.text == "true"
}

// whole is a member that is a whole number of at least one.
func (o *object) whole(key, need string) (int, bool) {
	v, ok := o.get(key, kindNumber, need)
	if !ok {
		return 0, false
	}

	n, err := strconv.Atoi(v.text)
	if err != nil || n < 1 {
		o.fail(key, RuleFieldValue, "is %s, and must be a whole number of 1 or more", v.text)
		return 0, false
	}
	return n, true
}

// nullableWhole is a whole number of at least one, or null; the key itself has to be there.
func (o *object) nullableWhole(key, need string) *int {
	if v, ok := o.value.lookup(key); ok && v.kind == kindNull {
		o.asked = append(o.asked, key)
		return nil
	}
	if n, ok := o.whole(key, need); ok {
		return &n
	}
	return nil
}

// number is a member that is any number.
func (o *object) number(key string) float64 {
	v, ok := o.get(key, kindNumber, "")
	if !ok {
		return 0
	}

	n, err := strconv.ParseFloat(v.text, 64)
	if err != nil {
		o.fail(key, RuleFieldValue, "is %s, which is out of range", v.text)
	}
	return n
}

// texts is a member that is a list of texts, none of them empty.
func (o *object) texts(key, need string) []string {
	list, ok := o.get(key, kindList, need)
	if !ok {
		return nil
	}

	out := []string{}
	for i, item := range list.items {
		field := fmt.Sprintf("%s[%d]", join(o.path, key), i)
		switch {
		case item.kind != kindText:
			o.add(item, field, RuleFieldType, false, "is %s, and must be a text", said(item))
		case strings.TrimSpace(item.text) == "":
			o.add(item, field, RuleFieldValue, false, "is empty; remove it")
		default:
			out = append(out, item.text)
		}
	}

	return out
}

// schema is a member that is a JSON Schema, as it is written.
func (o *object) schema(key, need string) (json.RawMessage, value, bool) {
	v, ok := o.get(key, kindObject, need)
	if !ok {
		return nil, value{}, false
	}
	if err := checkSchema(v.raw); err != nil {
		o.fail(key, RuleSchema, "is not a JSON Schema that can be checked by: %v", err)
	}
	return v.raw, v, true
}

// rootedSchema is a schema whose root is an object.
func (o *object) rootedSchema(key string) json.RawMessage {
	raw, v, ok := o.schema(key, `{"type": "object", "properties": {…}}`)
	if !ok {
		return nil
	}
	if kind, _ := v.lookup("type"); kind.text != "object" {
		o.fail(key, RuleSchemaRoot, `must have "type": "object" at its root`)
	}
	return raw
}

// child is a member that is an object; nil if it is not there.
func (o *object) child(key, need string) *object {
	v, ok := o.get(key, kindObject, need)
	if !ok {
		return nil
	}
	return &object{report: o.report, value: v, path: join(o.path, key)}
}

// each reads the objects of a list with each, and then says which of their keys are unknown.
func each[T any](o *object, key, need string, read func(*object) T) []T {
	list, ok := o.get(key, kindList, need)
	if !ok {
		return nil
	}

	out := []T{}
	for i, item := range list.items {
		one := &object{report: o.report, value: item, path: fmt.Sprintf("%s[%d]", join(o.path, key), i)}
		if item.kind != kindObject {
			o.add(item, one.path, RuleFieldType, false, "is %s, and must be an object", said(item))
			continue
		}

		out = append(out, read(one))
		one.end()
	}

	return out
}

// oneOf is a member that is one of some words.
func oneOf[T ~string](o *object, key, need string, among []T) T {
	v, ok := o.get(key, kindText, need)
	if !ok {
		return ""
	}
	if !slices.Contains(among, T(v.text)) {
		o.fail(key, RuleFieldValue, "%s", noneOf(v.text, among))
	}
	return T(v.text)
}

// manyOf is a member that is a list of some words.
func manyOf[T ~string](o *object, key, need string, among []T) []T {
	list, ok := o.get(key, kindList, need)
	if !ok {
		return nil
	}

	out := []T{}
	for i, item := range list.items {
		field := fmt.Sprintf("%s[%d]", join(o.path, key), i)
		switch {
		case item.kind != kindText:
			o.add(item, field, RuleFieldType, false, "is %s, and must be a text", said(item))
		case !slices.Contains(among, T(item.text)):
			o.add(item, field, RuleFieldValue, false, "%s", noneOf(item.text, among))
		default:
			out = append(out, T(item.text))
		}
	}

	return out
}

// noneOf says that a word is none of some, and which was probably meant.
func noneOf[T ~string](word string, among []T) string {
	var known []string
	for _, k := range among {
		known = append(known, string(k))
	}
	return fmt.Sprintf("%q is none of %s%s", text.Truncate(word, 40), strings.Join(known, ", "), near(word, known))
}

// near asks for the nearest of some words, as the end of a message; "" when none is near.
func near(word string, known []string) string {
	if ask := text.DidYouMean(word, known); ask != "" {
		return "; " + ask
	}
	return ""
}

// end warns of keys that mean nothing here.
func (o *object) end() {
	for _, m := range o.value.members {
		if o.full() {
			return
		}
		if !slices.Contains(o.asked, m.key) {
			o.add(value{line: m.line, column: m.column}, join(o.path, m.key), RuleFieldUnknown, true, "is not a field that is known here, and is passed over%s", near(m.key, o.asked))
		}
	}
}
