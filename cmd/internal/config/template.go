package config

import (
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser"

	"rouse/agent/model/playbook"
	"rouse/internal/text"
)

// Every run of a job has these in its templates and expressions.
var everyRun = []string{"Job", "Agent", "Run", "Attempt", "Scheduled", "LastSuccess", "LastRun", "Input"}

// fileFields are what .File has.
var fileFields = []string{"Path", "Name", "Size", "Hash", "ModTime"}

// changesFields are what .Changes has.
var changesFields = []string{"Added", "Removed", "Modified", "More"}

// manifest is the one name that is gone when a run has ended.
const manifest = "Manifest"

// watchNames are what the runs of a watch have as well, by its mode.
var watchNames = map[string][]string{
	modePerFile:  {"File"},
	modeBatch:    {"Files", "More", manifest},
	modeConverge: {"Folder", "Changes", "Round"},
}

// laterNames are known, and what they come with.
var laterNames = map[string]string{"Body": "webhooks"}

// scope is what the runs of a job can name. In a mode that there is not, which has been
// said, it is everything.
func scope(j *Job) []string {
	names := slices.Clone(everyRun)
	if j.Watch == nil {
		return names
	}
	if own, ok := watchNames[j.Watch.Mode]; ok {
		return append(names, own...)
	}

	for _, mode := range []string{modePerFile, modeBatch, modeConverge} {
		names = append(names, watchNames[mode]...)
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
	// text/template finds an unknown name only when it is executed.
	walk(t.Root, true, func(field []string) { found = append(found, field) })

	for _, field := range found {
		if !slices.Contains(names, field[0]) {
			c.unknownName(path, field[0], names)
		} else if len(field) > 1 {
			c.part(path, field[0], field[1])
		}
	}
}

// part checks the field that is read from a value, where its fields are known.
func (c *checker) part(path, name, part string) {
	var has []string
	switch {
	case name == "File" && c.mode == modePerFile:
		has = fileFields
	case name == "Changes" && c.mode == modeConverge:
		has = changesFields
	case name == "item":
		has = c.item
	case name == "Files" && c.mode == modeBatch:
		c.bad(path, "Files is a list, of which %q cannot be taken", part).Hint = `take each of them: {{ range .Files }}{{ .Path }}{{ end }}; or in a playbook each: "= Files", and {{ .item.Path }}`
	}

	if has != nil && !slices.Contains(has, part) {
		c.bad(path, "%s", text.NoSuch("field of ."+name, part, has))
	}
}

func (c *checker) unknownName(path, name string, names []string) {
	switch mode := modeOf(name); {
	case name == manifest && c.mode == modeBatch:
		c.bad(path, "the manifest is removed when a run has ended; .Files tells what was in it")
	case mode == modePerFile && c.mode == "":
		c.bad(path, "only a run that a watch started has a File, and this job has no watch")
	case mode == modePerFile && c.mode == modeBatch:
		c.bad(path, "a run of a batch has many files: Files, not File").Hint = `in a playbook each: "= Files" makes the call for each of them, with {{ .item.Path }}; in a prompt: {{ range .Files }}{{ .Path }}{{ end }}`
	case mode != "" && c.mode == "":
		c.bad(path, "only a run of a watch with mode: %s has %s, and this job has no watch", mode, name)
	case mode != "":
		own := watchNames[c.mode]
		c.bad(path, "only a run of a watch with mode: %s has %s, and the mode is %s", mode, name, c.mode).Hint = "this one has " + strings.Join(own, ", ")
	case laterNames[name] != "":
		c.bad(path, "%s is not available in this version (%s)", name, laterNames[name])
	default:
		c.bad(path, "%s", text.NoSuch("value", name, names))
	}
}

// modeOf is the mode whose runs have a name, "" when it is none of theirs.
func modeOf(name string) string {
	for mode, names := range watchNames {
		if slices.Contains(names, name) {
			return mode
		}
	}
	return ""
}

// walk calls found with every field that a template takes from its data. Inside range and
// with the dot is something else, and nothing is known about its fields.
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
		// $ is the data itself, wherever the dot has moved; other variables are of unknown shape.
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

	for _, m := range v.parts {
		if slices.Contains(names, m[0]) && !slices.Contains(v.declared, m[0]) {
			c.part(path, m[0], m[1])
		}
	}

	for _, name := range v.used {
		// $env is the expression language's own name for all values.
		if name != "$env" && !slices.Contains(names, name) && !slices.Contains(v.declared, name) {
			c.unknownName(path, name, names)
		}
	}
}

// identifiers collects the names in an expression, and what is taken of them.
type identifiers struct {
	used, declared []string
	parts          [][2]string
}

// Visit implements ast.Visitor.
func (v *identifiers) Visit(n *ast.Node) {
	switch n := (*n).(type) {
	case *ast.IdentifierNode:
		v.used = append(v.used, n.Value)
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
