package playbook

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/checker"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/types"

	"rouse/internal/text"
)

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Check returns the mistakes in calls before they run. names are in the data of every run.
func Check(calls []Call, names []string) []error {
	var problems []error
	for i, c := range calls {
		report := func(err error) {
			if err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", label(i, c), err))
			}
		}

		if c.Name == "" {
			report(errors.New("it has no call: with the name of a tool"))
		}

		if c.OnError != "" && c.OnError != onErrorFail && c.OnError != onErrorContinue {
			report(fmt.Errorf("on_error %q is neither fail nor continue", c.OnError))
		}

		if c.If != "" {
			report(checkExpression("if", c.If))
		}

		checkValue("each", c.Each, report)
		checkValue("with", c.With, report)
		report(checkSave(c.Save, names))
		c.Expect.check(report)
		report(c.checkMustSucceed())
	}

	return problems
}

func checkSave(name string, names []string) error {
	switch {
	case name == "":
		return nil
	case !identifier.MatchString(name):
		return fmt.Errorf("save %q is not a name: letters, digits and _, and no digit first", name)
	case name == "item" || name == "index":
		return fmt.Errorf("save %q hides what each gives", name)
	case slices.Contains(names, name):
		return fmt.Errorf("save %q hides a name that every run has", name)
	}
	return nil
}

func checkValue(where string, v any, report func(error)) {
	switch v := v.(type) {
	case string:
		if source, ok := strings.CutPrefix(v, marker); ok {
			report(checkExpression(where, source))
			return
		}
		report(CheckTemplate(where, v))
	case []any:
		for i, item := range v {
			checkValue(fmt.Sprintf("%s[%d]", where, i), item, report)
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			checkValue(where+"."+k, v[k], report)
		}
	}
}

// Types maps names in the data of a run to their types. A type is nil if it is known only at run
// time.
type Types map[string]reflect.Type

// Shape is the type of a value, and of the items if it is a list. A type is nil if it is known only
// at run time.
type Shape struct{ Type, Item reflect.Type }

// noMember matches the expression library's error for a missing member of a type.
var noMember = regexp.MustCompile(`^type (\S+) has no (?:field|method) (\S+)`)

// CheckExpression checks an expression over data of the given types before a run. It returns the
// shape of the result.
func CheckExpression(name, source string, known Types) (Shape, error) {
	if err := checkExpression(name, source); err != nil {
		return Shape{}, err
	}

	env := types.Map{}
	for key, t := range known {
		if env[key] = types.Any; t != nil && t.Kind() != reflect.Interface {
			env[key] = types.TypeOf(reflect.Zero(t).Interface())
		}
	}

	c := conf.CreateNew()
	for _, option := range append(languageOptions(), expr.Env(env)) {
		option(c)
	}
	for off := range c.Disabled {
		delete(c.Builtins, off)
	}
	c.Check()

	tree, err := parser.ParseWithConfig(source, c)
	if err != nil {
		return Shape{}, broken(name, err)
	}
	gives, err := checker.Check(tree, c)
	if err != nil {
		if m := noMember.FindStringSubmatch(err.Error()); m != nil {
			return Shape{}, &FieldError{Field: m[2], Has: membersOf(m[1], known)}
		}
		return Shape{}, broken(name, err)
	}

	nature := tree.Node.Nature()
	shape := Shape{Type: gives, Item: nature.Elem(&c.NtCache).Type}
	if shape.Type != nil && shape.Type.Kind() == reflect.Interface {
		shape.Type = nil
	}
	return shape, nil
}

// FieldError is the error of an expression that uses a missing field of a value.
type FieldError struct {
	Field string
	Has   []string // the existing fields, as far as they are known
}

func (e *FieldError) Error() string { return text.NoSuch("field", e.Field, e.Has) }

func membersOf(name string, known Types) []string {
	for _, t := range known {
		for t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer) {
			t = t.Elem()
		}
		if t != nil && t.String() == name {
			return Members(t)
		}
	}
	return nil
}

// Members returns the exported fields of a struct type, or nil for any other type.
func Members(t reflect.Type) []string {
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}

	var out []string
	for _, f := range reflect.VisibleFields(t) {
		if f.IsExported() && !f.Anonymous {
			out = append(out, f.Name)
		}
	}
	return out
}
