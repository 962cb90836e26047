package playbook

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/expr-lang/expr"
)

// maxExpanded bounds what one template may yield, in bytes.
const maxExpanded = 1 << 20

var missingKey = regexp.MustCompile(`map has no entry for key "([^"]*)"`)

// Expand fills a template with data. The error names the template and what is missing.
func Expand(name, text string, data map[string]any) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	t, err := parse(name, text)
	if err != nil {
		return "", err
	}
	out := &bounded{}
	if err := t.Execute(out, data); err != nil {
		return "", explain(name, err, data)
	}
	return out.String(), nil
}

func parse(name, text string) (*template.Template, error) {
	t, err := template.New(name).Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("the template of %s is broken: %s", name, strings.TrimPrefix(err.Error(), "template: "))
	}
	return t, nil
}

// CheckTemplate says whether a template can be parsed.
func CheckTemplate(name, text string) error {
	if !strings.Contains(text, "{{") {
		return nil
	}
	_, err := parse(name, text)
	return err
}

// explain words a failed execution for someone who writes YAML.
func explain(name string, err error, data map[string]any) error {
	if m := missingKey.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("the template of %s uses %q, which this run does not have; it has %s", name, m[1], strings.Join(slices.Sorted(maps.Keys(data)), ", "))
	}
	return fmt.Errorf("the template of %s cannot be filled: %s", name, strings.TrimPrefix(err.Error(), "template: "))
}

// bounded keeps a template in a loop from taking the host's memory.
type bounded struct{ strings.Builder }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxExpanded {
		return 0, fmt.Errorf("it yields more than %d bytes", maxExpanded)
	}
	return b.Builder.Write(p)
}

// evaluate computes an expression.
func evaluate(name, text string, data map[string]any) (any, error) {
	program, err := expr.Compile(text, expr.Env(data))
	if err != nil {
		return nil, fmt.Errorf("the expression of %s is broken: %s", name, firstLine(err))
	}
	v, err := expr.Run(program, data)
	if err != nil {
		return nil, fmt.Errorf("the expression of %s cannot be computed: %s", name, firstLine(err))
	}
	return v, nil
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// value expands templates and expressions at any depth.
func value(name string, v any, data map[string]any) (any, error) {
	switch v := v.(type) {
	case string:
		if source, ok := strings.CutPrefix(v, "= "); ok {
			return evaluate(name, source, data)
		}
		return Expand(name, v, data)
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			var err error
			if out[i], err = value(fmt.Sprintf("%s[%d]", name, i), item, data); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			var err error
			if out[k], err = value(name+"."+k, v[k], data); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return v, nil
}
