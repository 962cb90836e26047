package check

import (
	"errors"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser"

	"rouse/agent/clirun"
	"rouse/agent/model/playbook"
	"rouse/cmd/internal/config"
	"rouse/internal/text"
)

// everyRun lists the names that templates and expressions of every job know.
var everyRun = []string{"Job", "Agent", "Run", "Attempt", "Scheduled", "LastSuccess", "LastRun", "Input"}

// manifest is the only name that is not available after the end of a run.
const manifest = "Manifest"

// watchNames lists the additional names in runs of a watch, by mode.
var watchNames = map[string][]string{
	config.PerFile:  {"File"},
	config.Batch:    {"Files", "More", manifest},
	config.Converge: {"Folder", "Changes", "Round"},
}

// webhookNames lists the additional names in runs of a webhook.
var webhookNames = []string{"Body", "Payload", "Delivery"}

// followNames lists the additional names in runs of a job that follows another job.
var followNames = []string{"After"}

// scope returns the names that templates and expressions of a job know.
func scope(j *config.Job) []string {
	names := slices.Clone(everyRun)
	if j.Webhook != nil {
		names = append(names, webhookNames...)
	}
	if len(j.Follows) > 0 {
		names = append(names, followNames...)
	}
	if j.Watch == nil {
		return names
	}
	if own, ok := watchNames[j.Watch.Mode]; ok {
		return append(names, own...)
	}

	for _, mode := range []string{config.PerFile, config.Batch, config.Converge} {
		names = append(names, watchNames[mode]...)
	}
	return names
}

// bareFile matches a template of only .File.
var bareFile = regexp.MustCompile(`^\s*\{\{-?\s*\.File\s*-?\}\}\s*$`)

// templates checks templates and expressions.
type templates struct {
	report
	types map[string]reflect.Type // types of the names in templates and expressions

	// State of the current job:
	mode  string       // mode of its watch; "" without a watch
	saved []string     // names of the results that earlier calls saved
	item  reflect.Type // item type of the current each; nil if unknown
}

// template reports whether a template can be parsed and filled. It reports a problem if not.
func (c *templates) template(path, source string, names []string) bool {
	where := path[strings.LastIndexAny(path, ".")+1:]
	if err := playbook.CheckTemplate(where, source); err != nil {
		c.bad(path, "%s", err.Error())
		return false
	}

	// Filling it would give all fields of the file as JSON, and each run would use that as a file
	// name.
	if (where == "path" || where == "move") && bareFile.MatchString(source) && slices.Contains(names, "File") && !slices.Contains(c.saved, "File") {
		c.bad(path, "{{ .File }} is all that is known of the file, which is no path").Hint = "its path is {{ .File.Path }}"
		return false
	}
	return c.fields(path, source, names)
}

// typesOf returns the types of names. The type is nil if only a run knows it.
func (c *templates) typesOf(names []string) playbook.Types {
	out := playbook.Types{}
	for _, name := range names {
		switch {
		case name == "item":
			out[name] = c.item
		case slices.Contains(c.saved, name):
			out[name] = nil // a saved result hides a name that other kinds of runs have
		default:
			out[name] = c.types[name]
		}
	}
	return out
}

func (c *templates) unknownName(path, name string, names []string) {
	switch mode := modeOf(name); {
	case slices.Equal(names, clirun.ArgvNames()):
		c.bad(path, "the arguments of an executor know no %s, since what comes from outside could be an option there; let the prompt name it. They know %s", name, strings.Join(names, ", "))
	case name == manifest && c.mode == config.Batch:
		c.bad(path, "the manifest is removed when a run has ended; .Files tells what was in it")
	case mode == config.PerFile && c.mode == "":
		c.bad(path, "only a run that a watch started has a File, and this job has no watch")
	case mode == config.PerFile && c.mode == config.Batch:
		c.bad(path, "a run of a batch has many files: Files, not File").Hint = `in a playbook each: "= Files" makes the call for each of them, with {{ .item.Path }}; in a prompt: {{ range .Files }}{{ .Path }}{{ end }}`
	case mode != "" && c.mode == "":
		c.bad(path, "only a run of a watch with mode: %s has %s, and this job has no watch", mode, name)
	case mode != "":
		own := watchNames[c.mode]
		c.bad(path, "only a run of a watch with mode: %s has %s, and the mode is %s", mode, name, c.mode).Hint = "this one has " + strings.Join(own, ", ")
	case slices.Contains(webhookNames, name):
		c.bad(path, "only a run that a webhook started has %s, and this job has no webhook", name)
	case slices.Contains(followNames, name):
		c.bad(path, "only a run that follows one of another job has %s, and this job has no after", name)
	default:
		c.bad(path, "%s", text.NoSuch("value", name, names))
	}
}

func modeOf(name string) string {
	for mode, names := range watchNames {
		if slices.Contains(names, name) {
			return mode
		}
	}
	return ""
}

// expression checks the form and names of an expression, and returns the shape of its value.
func (c *templates) expression(path, source string, names []string) (gives playbook.Shape) {
	if source == "" {
		return gives
	}

	where := path[strings.LastIndexAny(path, ".")+1:]
	tree, err := parser.Parse(source)
	if err != nil {
		_, err = playbook.CheckExpression(where, source, nil) // for the message in our words
		c.bad(path, "%s", err.Error())
		return gives
	}

	var v identifiers
	ast.Walk(&tree.Node, &v)
	known := true

	for _, m := range v.parts {
		if m[0] == "Files" && c.mode == config.Batch && !slices.Contains(v.declared, m[0]) {
			c.partOfFiles(path, m[1])
			known = false
		}
	}

	for _, name := range v.used {
		// $env is the expression language's own name for all values.
		if name != "$env" && !slices.Contains(names, name) && !slices.Contains(v.declared, name) && !slices.Contains(v.called, name) {
			c.unknownName(path, name, names)
			known = false
		}
	}

	if !known {
		return gives
	}

	gives, err = playbook.CheckExpression(where, source, c.typesOf(names))
	var field *playbook.FieldError
	switch {
	case errors.As(err, &field):
		c.bad(path, "%s", text.NoSuch("field"+v.ownerOf(field.Field), field.Field, field.Has))
	case err != nil:
		c.bad(path, "%s", err.Error())
	}
	return gives
}

// partOfFiles reports that the files of a batch are a list.
func (c *templates) partOfFiles(path, part string) {
	c.bad(path, "Files is a list, of which %q cannot be taken", part).Hint = `take each of them: {{ range .Files }}{{ .Path }}{{ end }}; or in a playbook each: "= Files", and {{ .item.Path }}`
}

// identifiers collects the names in an expression and the fields that it reads.
type identifiers struct {
	used, declared, called []string
	parts                  [][2]string
}

// ownerOf returns " of .File" if a field is read from .File. It returns "" if the owner is
// unknown.
func (v identifiers) ownerOf(part string) string {
	for _, m := range v.parts {
		if m[1] == part {
			return " of ." + m[0]
		}
	}
	return ""
}

// Visit implements ast.Visitor.
func (v *identifiers) Visit(n *ast.Node) {
	switch n := (*n).(type) {
	case *ast.IdentifierNode:
		v.used = append(v.used, n.Value)
	case *ast.CallNode:
		if f, ok := n.Callee.(*ast.IdentifierNode); ok {
			v.called = append(v.called, f.Value)
		}
	case *ast.MemberNode:
		name, named := n.Node.(*ast.IdentifierNode)
		part, constant := n.Property.(*ast.StringNode)
		if named && constant {
			v.parts = append(v.parts, [2]string{name.Value, part.Value})
		}
	case *ast.VariableDeclaratorNode:
		v.declared = append(v.declared, n.Name)
	}
}

// fields checks the names and fields in a template, which text/template does only during
// execution. It reports whether they are right.
func (c *templates) fields(path, source string, names []string) bool {
	if !strings.Contains(source, "{{") {
		return true
	}

	t, err := template.New(path).Parse(source)
	if err != nil || t.Tree == nil {
		return true
	}

	f := fieldCheck{c: c, path: path, names: names, types: c.typesOf(names), assigned: map[string]bool{}}
	for _, m := range assignment.FindAllStringSubmatch(source, -1) {
		f.assigned[m[1]], f.assigned[m[2]] = true, true
	}
	f.walk(t.Root, data, map[string]value{"$": data})
	return !f.wrong
}

// assignment matches variables that get a new value, as in $x = 1 or range $i, $x = .Files.
var assignment = regexp.MustCompile(`(\$\w+)\s*(?:,\s*(\$\w+)\s*)?=`)

// value is the known information about a value in a template.
type value struct {
	whole bool         // it is all data of the run
	t     reflect.Type // nil if only the run knows it
	name  string       // as written in the template
}

// data is the value of the dot outside range and with.
var data = value{whole: true}

// fieldCheck follows the values of a template through its dots, variables, loops and pipes.
type fieldCheck struct {
	c        *templates
	path     string
	names    []string
	types    playbook.Types
	wrong    bool            // a problem was reported
	assigned map[string]bool // variables that get a new value later
}

func (f *fieldCheck) walk(n parse.Node, dot value, vars map[string]value) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return
		}
		for _, inner := range n.Nodes {
			f.walk(inner, dot, vars)
		}
	case *parse.ActionNode:
		f.declare(n.Pipe, f.pipe(n.Pipe, dot, vars), vars)
	case *parse.IfNode:
		f.branch(&n.BranchNode, dot, vars, func(value) value { return dot })
	case *parse.WithNode:
		f.branch(&n.BranchNode, dot, vars, func(of value) value { return of })
	case *parse.RangeNode:
		f.branch(&n.BranchNode, dot, vars, item)
	case *parse.TemplateNode:
		f.pipe(n.Pipe, dot, vars)
	}
}

// branch checks if, range and with. Variables end with their block. inside returns the dot within.
func (f *fieldCheck) branch(n *parse.BranchNode, dot value, vars map[string]value, inside func(value) value) {
	inner := maps.Clone(vars)
	of := f.pipe(n.Pipe, dot, inner)
	within := inside(of)
	switch {
	case len(n.Pipe.Decl) == 0:
	case n.NodeType == parse.NodeRange: // $index, $item := or $item :=
		for i, v := range n.Pipe.Decl {
			if inner[v.Ident[0]] = (value{}); i == len(n.Pipe.Decl)-1 && !f.assigned[v.Ident[0]] {
				inner[v.Ident[0]] = within
			}
		}
	default:
		f.declare(n.Pipe, of, inner)
	}

	f.walk(n.List, within, maps.Clone(inner))
	f.walk(n.ElseList, dot, inner)
}

func (f *fieldCheck) declare(p *parse.PipeNode, v value, vars map[string]value) {
	for _, d := range p.Decl {
		if vars[d.Ident[0]] = v; f.assigned[d.Ident[0]] {
			vars[d.Ident[0]] = value{}
		}
	}
}

// pipe checks all parts of a pipe and returns its result.
func (f *fieldCheck) pipe(p *parse.PipeNode, dot value, vars map[string]value) (out value) {
	if p == nil {
		return out
	}

	for _, command := range p.Cmds {
		var args []value
		for _, arg := range command.Args {
			args = append(args, f.argument(arg, dot, vars))
		}

		out = value{} // the result of a function is unknown
		if function, ok := command.Args[0].(*parse.IdentifierNode); len(args) == 1 && !ok {
			out = args[0]
		} else if ok && function.Ident == "index" && len(args) == 3 {
			out = item(args[1])
		}
	}
	return out
}

func (f *fieldCheck) argument(n parse.Node, dot value, vars map[string]value) value {
	switch n := n.(type) {
	case *parse.DotNode:
		return dot
	case *parse.FieldNode:
		return f.take(dot, n.Ident)
	case *parse.VariableNode:
		return f.take(vars[n.Ident[0]], n.Ident[1:])
	case *parse.ChainNode:
		return f.take(f.argument(n.Node, dot, vars), n.Field)
	case *parse.PipeNode:
		return f.pipe(n, dot, vars)
	}
	return value{}
}

// take resolves a chain of fields in a value and reports the first unknown one.
func (f *fieldCheck) take(from value, idents []string) value {
	for i, name := range idents {
		if from.whole {
			if !slices.Contains(f.names, name) {
				f.wrong = true
				f.c.unknownName(f.path, name, f.names)
				return value{}
			}
			from = value{t: f.types[name], name: "." + name}
			continue
		}

		t := from.t
		if t != nil && t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t == nil || t.Kind() == reflect.Interface || t.Kind() == reflect.Map {
			return value{}
		}

		whole := from.name + "." + name
		if m, ok := reflect.PointerTo(t).MethodByName(name); ok {
			from = value{t: m.Type.Out(0), name: whole}
			if i < len(idents)-1 { // the result type of a method is not followed
				return value{}
			}
			continue
		}

		switch field, ok := fieldOf(t, name); {
		case ok:
			from = value{t: field, name: whole}
		case from.name == ".Files":
			f.wrong = true
			f.c.partOfFiles(f.path, name)
			return value{}
		case len(playbook.Members(t)) > 0:
			f.wrong = true
			f.c.bad(f.path, "%s", text.NoSuch("field of "+from.name, name, playbook.Members(t)))
			return value{}
		default:
			f.wrong = true
			f.c.bad(f.path, "%s has no parts, so that %q cannot be taken of it", from.name, name)
			return value{}
		}
	}
	return from
}

// fieldOf returns the type of an exported field of a struct.
func fieldOf(t reflect.Type, name string) (reflect.Type, bool) {
	if t.Kind() != reflect.Struct {
		return nil, false
	}
	field, ok := t.FieldByName(name)
	return field.Type, ok && field.IsExported()
}

// item returns the known information about the items of a list.
func item(list value) value {
	if list.t != nil && list.t.Kind() == reflect.Slice {
		return value{t: list.t.Elem(), name: "each of " + list.name}
	}
	return value{}
}
