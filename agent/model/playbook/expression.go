package playbook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/types"
	"github.com/expr-lang/expr/vm"

	"rouse/internal/text"
)

// maxExpression is the maximum length of an expression in bytes. Deeper nesting would crash the
// process.
const maxExpression = 8 << 10

const marker = "= "

var noName = regexp.MustCompile(`^unknown name (\S+)`)

var unknownName = regexp.MustCompile(` is broken: unknown name (\S+)`)

// languageOptions returns the functions of expressions. There is no clock, and lists made from a
// map are sorted, so that a resumed attempt makes the same calls.
func languageOptions() []expr.Option {
	out := []expr.Option{expr.DisableBuiltin("now")}
	for name, item := range map[string]func(key string, value any) any{
		"keys":    func(key string, _ any) any { return key },
		"values":  func(_ string, value any) any { return value },
		"toPairs": func(key string, value any) any { return []any{key, value} },
	} {
		out = append(out, expr.DisableBuiltin(name), expr.Function(name, func(p ...any) (any, error) { return mapSorted(p[0], item) }, new(func(any) []any)))
	}
	return out
}

func mapSorted(v any, item func(key string, value any) any) (any, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%.60s is no object", show(v))
	}

	out := make([]any, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out = append(out, item(key, m[key]))
	}
	return out, nil
}

func evaluate(name, source string, data map[string]any) (any, error) {
	names := types.Map{} // names are known before the run, types are not
	for key := range data {
		names[key] = types.Any
	}

	program, err := compile(name, source, names)
	if err != nil {
		if m := unknownName.FindStringSubmatch(err.Error()); m != nil {
			return nil, fmt.Errorf("the expression of %s uses %q, which this run does not have; it has %s", name, m[1], strings.Join(memberNames(data), ", "))
		}
		return nil, err
	}

	v, err := expr.Run(program, data)
	if err != nil {
		return nil, fmt.Errorf("the expression of %s cannot be computed: %s", name, firstLine(err))
	}

	return v, nil
}

func compile(name, source string, names types.Map) (*vm.Program, error) {
	if len(source) > maxExpression {
		return nil, fmt.Errorf("the expression of %s is longer than %d bytes", name, maxExpression)
	}

	program, err := expr.Compile(source, append(languageOptions(), expr.Env(names))...)
	if err != nil {
		return nil, broken(name, err)
	}
	return program, nil
}

func functions() []string {
	return slices.DeleteFunc(slices.Clone(builtin.Names), func(name string) bool { return name == "now" })
}

func broken(name string, err error) error {
	what := firstLine(err)
	if m := noName.FindStringSubmatch(what); m != nil {
		if ask := text.DidYouMean(m[1], functions()); ask != "" {
			what += "; " + ask
		}
	}
	return fmt.Errorf("the expression of %s is broken: %s", name, what)
}

// checkExpression returns an error if an expression cannot be computed even if all its names exist.
func checkExpression(name, source string) error {
	// Every name is declared, so that only the syntax and the functions are checked.
	names := types.Map{}
	if len(source) <= maxExpression {
		if tree, err := parser.Parse(source); err == nil {
			v := identifiers{used: map[string]int{}}
			ast.Walk(&tree.Node, &v)
			for id, n := range v.used {
				if n > 0 {
					names[id] = types.Any
				}
			}
		}
	}

	_, err := compile(name, source, names)
	return err
}

// identifiers counts the names in an expression that refer to data of the run.
type identifiers struct{ used map[string]int }

// Visit implements ast.Visitor. A node comes after the nodes inside it.
func (v *identifiers) Visit(n *ast.Node) {
	switch n := (*n).(type) {
	case *ast.IdentifierNode:
		v.used[n.Value]++
	case *ast.CallNode: // the name was already counted as an identifier
		if f, ok := n.Callee.(*ast.IdentifierNode); ok {
			v.used[f.Value]--
		}
	case *ast.VariableDeclaratorNode:
		v.used[n.Name] = 0
	}
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// ExpandValue expands templates, and expressions after "= ", at any depth of a value.
func ExpandValue(name string, v any, data map[string]any) (any, error) {
	switch v := v.(type) {
	case string:
		if source, ok := strings.CutPrefix(v, marker); ok {
			return evaluate(name, source, data)
		}
		return Expand(name, v, data)
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			var err error
			if out[i], err = ExpandValue(fmt.Sprintf("%s[%d]", name, i), item, data); err != nil {
				return nil, err
			}
		}

		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) { // sorted, so that the same mistake is reported each time
			var err error
			if out[k], err = ExpandValue(name+"."+k, v[k], data); err != nil {
				return nil, err
			}
		}

		return out, nil
	}
	return v, nil
}

func toList(v any) ([]any, bool) {
	if items, ok := v.([]any); ok {
		return append([]any{}, items...), true
	}

	l := reflect.ValueOf(v)
	if v == nil || l.Kind() != reflect.Slice {
		return nil, false
	}

	items := make([]any, l.Len())
	for i := range items {
		items[i] = l.Index(i).Interface()
	}

	return items, true
}

// decode decodes a result and keeps whole numbers exact.
func decode(raw json.RawMessage) (any, error) {
	if len(raw) == 0 {
		return nil, nil
	}

	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber() // a float64 would round ids above 2^53
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return plainNumbers(v), nil
}

func plainNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}

		f, err := v.Float64()
		if err != nil {
			return v.String() // larger than any float
		}
		return f
	case []any:
		for i := range v {
			v[i] = plainNumbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = plainNumbers(v[k])
		}
	}
	return v
}
