package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"rouse/agent/model/playbook"
	"rouse/internal/text"
)

// fields checks the names of a template that can be parsed, and what it takes of their values.
// text/template finds a wrong one only when it is executed.
func (c *checker) fields(path, source string, names []string) {
	if !strings.Contains(source, "{{") {
		return
	}

	t, err := template.New(path).Parse(source)
	if err != nil || t.Tree == nil {
		return
	}

	f := fieldCheck{c: c, path: path, names: names, types: c.typesOf(names), assigned: map[string]bool{}}
	f.findAssigned(t.Root)
	f.walk(t.Root, data, map[string]value{"$": data})
}

// value is what is known of a value in a template.
type value struct {
	whole bool         // it is all the data of the run
	t     reflect.Type // nil: only the run knows
	name  string       // as the template writes it
}

// data is what the dot is outside of range and with.
var data = value{whole: true}

// fieldCheck follows the values of a template through its dots, variables, loops and pipes.
type fieldCheck struct {
	c        *checker
	path     string
	names    []string
	types    playbook.Types
	assigned map[string]bool // variables that get another value later
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

// branch follows if, range and with, whose variables end with them. inside is the dot within, by the value of
// the pipe.
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

// pipe checks all that stands in a pipe, and returns what it gives.
func (f *fieldCheck) pipe(p *parse.PipeNode, dot value, vars map[string]value) (out value) {
	if p == nil {
		return out
	}

	for _, command := range p.Cmds {
		var args []value
		for _, arg := range command.Args {
			args = append(args, f.argument(arg, dot, vars))
		}

		out = value{} // what a function makes
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

// take follows names into a value, and reports the first that is not there.
func (f *fieldCheck) take(from value, idents []string) value {
	for i, name := range idents {
		if from.whole {
			if !slices.Contains(f.names, name) {
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
			if i < len(idents)-1 { // what a call gives, only the call tells
				return value{}
			}
			continue
		}

		switch field, ok := fieldOf(t, name); {
		case ok:
			from = value{t: field, name: whole}
		case from.name == ".Files":
			f.c.partOfFiles(f.path, name)
			return value{}
		case len(playbook.Members(t)) > 0:
			f.c.bad(f.path, "%s", text.NoSuch("field of "+from.name, name, playbook.Members(t)))
			return value{}
		default:
			f.c.bad(f.path, "%s has no parts, so that %q cannot be taken of it", from.name, name)
			return value{}
		}
	}
	return from
}

// fieldOf is the type of a field of a struct.
func fieldOf(t reflect.Type, name string) (reflect.Type, bool) {
	if t.Kind() != reflect.Struct {
		return nil, false
	}
	field, ok := t.FieldByName(name)
	return field.Type, ok && field.IsExported()
}

// item is what is known of each item of a list.
func item(list value) value {
	if list.t != nil && list.t.Kind() == reflect.Slice {
		return value{t: list.t.Elem(), name: "each of " + list.name}
	}
	return value{}
}

// findAssigned notes the variables that are assigned another value: where they have which is not followed.
func (f *fieldCheck) findAssigned(n parse.Node) {
	note := func(p *parse.PipeNode) {
		if p != nil && p.IsAssign {
			for _, v := range p.Decl {
				f.assigned[v.Ident[0]] = true
			}
		}
	}
	branch := func(b *parse.BranchNode) {
		note(b.Pipe)
		f.findAssigned(b.List)
		f.findAssigned(b.ElseList)
	}

	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, inner := range n.Nodes {
				f.findAssigned(inner)
			}
		}
	case *parse.ActionNode:
		note(n.Pipe)
	case *parse.IfNode:
		branch(&n.BranchNode)
	case *parse.RangeNode:
		branch(&n.BranchNode)
	case *parse.WithNode:
		branch(&n.BranchNode)
	}
}
