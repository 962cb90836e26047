package playbook

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"
	"time"

	"rouse/internal/text"
)

const (
	maxActions   = 10_000  // per template: deeper nesting would crash the process
	maxWork      = 4 << 20 // maximum output of one template, in bytes
	perIteration = 64      // bytes charged per iteration of a range, because a loop without output must end too
	templateTag  = "t"     // the template's name in messages of text/template
)

// Expand expands a template with data. Its error contains the name of the template and of the
// missing value.
func Expand(name, text string, data map[string]any) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}

	w := &quota{left: maxWork}
	t, scoped, err := parseTemplate(name, text, w)
	if err != nil {
		return "", err
	}

	var out strings.Builder
	if err := t.Execute(quotaWriter{&out, w}, data); err != nil {
		return "", explainError(name, err, data, scoped)
	}

	return out.String(), nil
}

// CheckTemplate returns an error if a template cannot be parsed.
func CheckTemplate(name, text string) error {
	if !strings.Contains(text, "{{") {
		return nil
	}
	_, _, err := parseTemplate(name, text, &quota{})
	return err
}

var noFunction = regexp.MustCompile(`function "([^"]+)" not defined$`)

// templateFunctions are the functions of text/template.
var templateFunctions = strings.Fields("and call eq ge gt html index js le len lt ne not or print printf println slice urlquery")

// parseTemplate parses a template. It also reports whether the dot is another value than the data
// in some places.
func parseTemplate(name, source string, w *quota) (t *template.Template, scoped bool, err error) {
	// Count before parsing, because the parser recurses as deep.
	if strings.Count(source, "{{") > maxActions {
		return nil, false, fmt.Errorf("the template of %s has more than %d actions", name, maxActions)
	}

	t, err = template.New(templateTag).Option("missingkey=error").Funcs(w.functions()).Parse(source)
	if err != nil {
		what := strings.Replace(err.Error(), "template: "+templateTag, name, 1)
		if m := noFunction.FindStringSubmatch(what); m != nil {
			if ask := text.DidYouMean(m[1], templateFunctions); ask != "" {
				what += "; " + ask
			}
		}
		return nil, false, fmt.Errorf("the template of %s is broken: %s", name, what)
	}

	// A define adds another template, even if it is not used.
	in := instrument{}
	for _, part := range t.Templates() {
		in.list(part.Root)
	}

	if in.includes || len(t.Templates()) > 1 {
		return nil, false, fmt.Errorf("the template of %s uses define, block or template, which are not available: a template stands for itself", name)
	}

	return t, in.scoped, nil
}

// instrument adds _show to every output and _turn to every iteration of a range. text/template has
// no other way to limit a loop.
type instrument struct{ scoped, includes bool }

func (in *instrument) list(l *parse.ListNode) {
	if l == nil {
		return
	}
	for _, n := range l.Nodes {
		switch n := n.(type) {
		case *parse.ActionNode:
			if len(n.Pipe.Decl) == 0 { // an assignment prints nothing
				n.Pipe.Cmds = append(n.Pipe.Cmds, invoke("_show", n.Pos))
			}
		case *parse.IfNode:
			in.branch(&n.BranchNode)
		case *parse.WithNode:
			in.scoped = true
			in.branch(&n.BranchNode)
		case *parse.RangeNode:
			in.scoped = true
			in.branch(&n.BranchNode)
			iteration := &parse.ActionNode{NodeType: parse.NodeAction, Pos: n.Pos, Line: n.Line,
				Pipe: &parse.PipeNode{NodeType: parse.NodePipe, Pos: n.Pos, Line: n.Line, Cmds: []*parse.CommandNode{invoke("_turn", n.Pos)}}}
			n.List.Nodes = append([]parse.Node{iteration}, n.List.Nodes...)
		case *parse.TemplateNode: // it could call itself endlessly
			in.includes = true
		}
	}
}

func (in *instrument) branch(b *parse.BranchNode) {
	in.list(b.List)
	in.list(b.ElseList)
}

func invoke(function string, at parse.Pos) *parse.CommandNode {
	return &parse.CommandNode{NodeType: parse.NodeCommand, Pos: at, Args: []parse.Node{parse.NewIdentifier(function).SetPos(at)}}
}

type quota struct{ left int }

var errTooMuch = errors.New("the template does too much: its output and its loops come to more than 4 MiB")

func (w *quota) spend(n int) error {
	if w.left -= n; w.left < 0 {
		return errTooMuch
	}
	return nil
}

func (w *quota) charge(text string) (string, error) { return text, w.spend(len(text)) }

// wideFormat matches a width that makes a short format produce a huge text before it is counted.
var wideFormat = regexp.MustCompile(`%[^%a-zA-Z]*(\*|\d{4,})`)

// functions returns functions that charge their output, because it may stay in a variable.
func (w *quota) functions() template.FuncMap {
	return template.FuncMap{
		"_show": show,
		"_turn": func() (string, error) { return "", w.spend(perIteration) },
		"print": func(args ...any) (string, error) { return w.charge(fmt.Sprint(args...)) },
		"println": func(args ...any) (string, error) {
			return w.charge(fmt.Sprintln(args...))
		},
		"printf": func(format string, args ...any) (string, error) {
			if wideFormat.MatchString(format) {
				return "", fmt.Errorf("the format %q has a width of more than 999", format)
			}
			return w.charge(fmt.Sprintf(format, args...))
		},
		"html":     func(args ...any) (string, error) { return w.charge(template.HTMLEscaper(args...)) },
		"js":       func(args ...any) (string, error) { return w.charge(template.JSEscaper(args...)) },
		"urlquery": func(args ...any) (string, error) { return w.charge(template.URLQueryEscaper(args...)) },
	}
}

type quotaWriter struct {
	io.Writer
	*quota
}

func (m quotaWriter) Write(b []byte) (int, error) {
	if err := m.spend(len(b)); err != nil {
		return 0, err
	}
	return m.Writer.Write(b)
}

// show formats a value for people: no exponents, lists and objects as JSON, nil as "".
func show(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		return strconv.FormatFloat(text.Decimal(v), 'f', -1, 64)
	case fmt.Stringer:
		if t, ok := v.(time.Time); ok {
			return t.Format(time.RFC3339)
		}
		return v.String()
	}

	switch reflect.TypeOf(v).Kind() {
	case reflect.Map, reflect.Slice, reflect.Array, reflect.Struct:
		if text, err := json.Marshal(v); err == nil {
			return string(text)
		}
	}

	return fmt.Sprint(v)
}
