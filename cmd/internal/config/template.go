package config

import (
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser"

	"rouse/agent/model/playbook"
)

// Every run of a job has these in its templates and expressions.
var everyRun = []string{"Job", "Agent", "Run", "Attempt", "Scheduled", "LastSuccess", "LastRun", "Input"}

// fileFields are what .File has.
var fileFields = []string{"Path", "Name", "Size", "Hash", "ModTime"}

// laterNames are known, and what they come with.
var laterNames = map[string]string{"Files": "batch mode", "Changes": "batch mode", "Body": "webhooks"}

// scope is what the runs of a job can name; only a watch gives them a file.
func scope(j *Job) []string {
	names := slices.Clone(everyRun)
	if j.Watch != nil {
		names = append(names, "File")
	}
	return names
}

// template checks that a template can be parsed and filled.
func (c *checker) template(path, text string, names []string) {
	if err := playbook.CheckTemplate(path[strings.LastIndex(path, ".")+1:], text); err != nil {
		c.bad(path, "%s", err.Error())
		return
	}
	c.fields(path, text, names)
}

// fields checks the names of a template that can be parsed.
func (c *checker) fields(path, text string, names []string) {
	if !strings.Contains(text, "{{") {
		return
	}
	t, err := template.New(path).Parse(text)
	if err != nil || t.Tree == nil {
		return
	}
	var found [][]string
	walk(t.Root, true, func(field []string) { found = append(found, field) })
	for _, field := range found {
		switch {
		case !slices.Contains(names, field[0]):
			c.noName(path, field[0], names)
		case field[0] == "File" && len(field) > 1 && !slices.Contains(fileFields, field[1]):
			c.bad(path, "%s", Nearest("field of .File", field[1], fileFields))
		}
	}
}

func (c *checker) noName(path, name string, names []string) {
	switch {
	case name == "File":
		c.bad(path, "only a run that a watch started has a File, and this job has no watch")
	case laterNames[name] != "":
		c.bad(path, "%s is not available in this version (%s)", name, laterNames[name])
	default:
		c.bad(path, "%s", Nearest("value", name, names))
	}
}

// walk calls found with every field that a template takes from its data. Inside range and
// with the dot is something else, of which nothing is known.
func walk(n parse.Node, dot bool, found func([]string)) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return
		}
		for _, inner := range n.Nodes {
			walk(inner, dot, found)
		}
	case *parse.ActionNode:
		walk(n.Pipe, dot, found)
	case *parse.PipeNode:
		if n == nil {
			return
		}
		for _, command := range n.Cmds {
			for _, arg := range command.Args {
				walk(arg, dot, found)
			}
		}
	case *parse.FieldNode:
		if dot {
			found(n.Ident)
		}
	case *parse.VariableNode:
		if n.Ident[0] == "$" && len(n.Ident) > 1 {
			found(n.Ident[1:])
		}
	case *parse.ChainNode:
		walk(n.Node, dot, found)
	case *parse.IfNode:
		branch(n.BranchNode, dot, dot, found)
	case *parse.RangeNode:
		branch(n.BranchNode, dot, false, found)
	case *parse.WithNode:
		branch(n.BranchNode, dot, false, found)
	case *parse.TemplateNode:
		walk(n.Pipe, dot, found)
	}
}

func branch(n parse.BranchNode, dot, inside bool, found func([]string)) {
	walk(n.Pipe, dot, found)
	walk(n.List, inside, found)
	walk(n.ElseList, dot, found)
}

// expression checks the names of an expression that can be parsed.
func (c *checker) expression(path, text string, names []string) {
	if text == "" {
		return
	}
	tree, err := parser.Parse(text)
	if err != nil {
		return // which the playbook's own check says
	}
	var v identifiers
	ast.Walk(&tree.Node, &v)
	for _, name := range v.used {
		if name != "$env" && !slices.Contains(names, name) && !slices.Contains(v.declared, name) {
			c.noName(path, name, names)
		}
	}
}

// identifiers collects the names in an expression.
type identifiers struct{ used, declared []string }

// Visit implements ast.Visitor.
func (v *identifiers) Visit(n *ast.Node) {
	switch n := (*n).(type) {
	case *ast.IdentifierNode:
		v.used = append(v.used, n.Value)
	case *ast.VariableDeclaratorNode:
		v.declared = append(v.declared, n.Name)
	}
}
