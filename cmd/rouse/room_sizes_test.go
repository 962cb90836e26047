package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"rouse/cmd/internal/endtoend"
)

// Limits that keep a package readable for a newcomer. Tests and generated files do not count.
const (
	maxFiles   = 30   // files per package
	maxLines   = 5000 // lines per package
	maxMethods = 30   // methods per exported type
	maxFields  = 20   // fields per struct, except for the configuration
)

// larger lists the exceptions with their current sizes. They may shrink but must not grow.
var larger = map[string]int{
	// Each command has its own file.
	"cmd/rouse files": 51,
	"cmd/rouse lines": 11870,

	// Values: a field for each column of a row, each key of a document, or each thing that a person is shown.
	"agent/permit.definition fields":           31,
	"agent/loop.Options fields":                28,
	"agent/plan.Agent fields":                  36,
	"agent/plan.Job fields":                    26,
	"agent/tool.Spec fields":                   31,
	"agent/tool/executor.Result fields":        23,
	"agent/tool/executor.Reading fields":       22,
	"cmd/internal/api.Run fields":              29,
	"cmd/internal/api.Status fields":           23,
	"cmd/internal/api.Item fields":             21,
	"cmd/internal/dashboard.today fields":      22,
	"cmd/internal/why.explanation fields":      21,
	"internal/ledger/artifact.Artifact fields": 21,
	"internal/ledger.TriggerDetail fields":     29,
	"internal/ledger/record.Run fields":        31,
	"skills.Manifest fields":                   29,

	// Tests that both databases of the ledger must pass.
	"internal/ledger/ledgertest files": 31,
	"internal/ledger/ledgertest lines": 6982,

	// To be divided.
	"agent/checkout.Store methods":      42,
	"agent/loop.run fields":             35,
	"agent/model/wire.Client methods":   41,
	"agent/tool.Roots methods":          38,
	"agent/tool/executor.Reader fields": 21,
	"agent/tool/file lines":             5294,
	"agent/tool/moduleapi.Host methods": 93,
}

// TestRoomSizes fails if a package, a type or a struct exceeds its limit, or if an exception is no
// longer needed.
func TestRoomSizes(t *testing.T) {
	endtoend.Unraced(t)
	t.Parallel()
	used := map[string]bool{}
	atMost := func(what, unit string, n, limit int) {
		if n <= limit {
			return
		}
		key := what + " " + unit
		used[key] = true
		if today := larger[key]; n > max(limit, today) {
			t.Errorf("%s has %d %s, at most %d are wanted", what, n, unit, max(limit, today))
		}
	}

	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, "rouse/")
		r := readRoom(t, filepath.Join("../..", name))
		atMost(name, "files", r.files, maxFiles)
		atMost(name, "lines", r.lines, maxLines)
		for typ, n := range r.methods {
			if ast.IsExported(typ) {
				atMost(name+"."+typ, "methods", n, maxMethods)
			}
		}
		if !strings.HasPrefix(name, "cmd/internal/config") {
			for typ, n := range r.fields {
				atMost(name+"."+typ, "fields", n, maxFields)
			}
		}
	}
	for what := range larger {
		if !used[what] {
			t.Errorf("%s: it is no longer too large, remove its line from larger", what)
		}
	}
}

// room holds the counts of a package.
type room struct {
	files, lines    int
	methods, fields map[string]int // by type
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func readRoom(t *testing.T, dir string) room {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}

	r := room{methods: map[string]int{}, fields: map[string]int{}}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, "_test.go") || generated.Match(text) {
			continue
		}
		r.files++
		r.lines += strings.Count(string(text), "\n")

		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					r.methods[receiver(d.Recv.List[0].Type)]++
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok {
						if fields, ok := s.Type.(*ast.StructType); ok {
							r.fields[s.Name.Name] = fields.Fields.NumFields()
						}
					}
				}
			}
		}
	}
	return r
}

// receiver returns the name of the type of a method.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
