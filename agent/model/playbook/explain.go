package playbook

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Parts of text/template errors that help the author of a playbook.
var (
	execError = regexp.MustCompile(`(?s)^template: ` + templateTag + `:\d+:\d+: executing "` + templateTag + `" at <(.*?)>: (.*)$`)
	noKey     = regexp.MustCompile(`map has no entry for key "(.*)"$`)
	noField   = regexp.MustCompile(`can't evaluate field (\S+) in type|nil pointer evaluating .*\.(\w+)$`)
	funcError = regexp.MustCompile(`^error calling \w+: (.*)$`)
)

// explainError rewrites an execution error for an author of YAML. scoped reports whether the dot
// may be a value other than the data.
func explainError(name string, err error, data map[string]any, scoped bool) error {
	m := execError.FindStringSubmatch(err.Error())
	switch {
	case errors.Is(err, errTooMuch):
		return fmt.Errorf("the template of %s cannot be filled: %w", name, errTooMuch)
	case m == nil:
		return fmt.Errorf("the template of %s cannot be filled: %w", name, err)
	}

	// at is the expression in the template, as written by its author.
	at, problem := m[1], m[2]
	if key := missingName(problem); key != "" {
		return fmt.Errorf("the template of %s uses %s", name, describeMissing(at, key, data, scoped))
	}

	if inner := funcError.FindStringSubmatch(problem); inner != nil {
		problem = inner[1]
	}

	return fmt.Errorf("the template of %s cannot be filled: %s: %s", name, at, problem)
}

func missingName(problem string) string {
	if m := noKey.FindStringSubmatch(problem); m != nil {
		return m[1]
	}
	if m := noField.FindStringSubmatch(problem); m != nil {
		return m[1] + m[2] // only one of the two alternatives matches
	}
	return ""
}

// describeMissing describes the missing name, and lists the existing names if they are known.
func describeMissing(at, key string, data map[string]any, scoped bool) string {
	path, known := strings.CutPrefix(at, "$.")
	if !known {
		path, known = strings.CutPrefix(at, ".")
		known = known && !scoped // within range or with, the dot is another value
	}
	if !known {
		return fmt.Sprintf("%q, which is not there", key)
	}

	// Follow the path from the data to the first part that does not exist.
	var owner any = data
	names := strings.Split(path, ".")
	for i, part := range names {
		value, ok := lookup(owner, part)
		switch {
		case ok:
			owner = value
			continue
		case i == 0:
			return fmt.Sprintf("%q, which this run does not have; it has %s", part, strings.Join(memberNames(owner), ", "))
		}

		full, parent := strings.Join(names[:i+1], "."), strings.Join(names[:i], ".")
		switch has := memberNames(owner); {
		case owner == nil:
			return fmt.Sprintf("%q, but %s has no value here", full, parent)
		case reflect.TypeOf(owner).Kind() == reflect.Slice:
			return fmt.Sprintf("%q, but %s is a list: take each of it with {{ range .%s }}, or one with {{ (index .%s 0).%s }}", full, parent, parent, parent, part)
		case has == nil:
			return fmt.Sprintf("%q, but %s is %.60s, which has no parts", full, parent, show(owner))
		case len(has) == 0:
			return fmt.Sprintf("%q, but %s is an empty object", full, parent)
		default:
			return fmt.Sprintf("%q, but %s has only %s", full, parent, strings.Join(has, ", "))
		}
	}

	return fmt.Sprintf("%q, which is not there", key)
}

func lookup(owner any, name string) (any, bool) {
	if m, ok := owner.(map[string]any); ok {
		v, ok := m[name]
		return v, ok
	}

	v := reflect.ValueOf(owner)
	if v.Kind() != reflect.Struct {
		return nil, false
	}

	f, ok := v.Type().FieldByName(name)
	if !ok || !f.IsExported() {
		return nil, false
	}

	return v.FieldByIndex(f.Index).Interface(), true
}

func memberNames(owner any) []string {
	if m, ok := owner.(map[string]any); ok {
		return slices.AppendSeq([]string{}, slices.Values(slices.Sorted(maps.Keys(m))))
	}

	return Members(reflect.TypeOf(owner))
}
