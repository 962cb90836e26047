package playbook

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// identifier is a name that both templates and expressions can use.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Check finds mistakes in calls before any of them runs; names are in the data of every run.
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
