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

// What a newcomer can survey. Tests and generated files are not counted.
const (
	maxFiles   = 30   // files of a package
	maxLines   = 5000 // lines of a package
	maxMethods = 30   // methods of an exported type
	maxFields  = 20   // fields of a struct outside the configuration
)

// larger are the packages, types and structs that are larger, with the reason.
var larger = map[string]string{
	"cmd/rouse": "one file for each verb",
}

// TestRoomSizes fails on a package, a type or a struct in which a newcomer gets lost, and on a reason
// that is no longer needed.
func TestRoomSizes(t *testing.T) {
	endtoend.Unraced(t)
	t.Parallel()
	used := map[string]bool{}
	atMost := func(what, unit string, n, limit int) {
		if n > limit {
			used[what] = true
			if larger[what] == "" {
				t.Errorf("%s has %d %s, at most %d are wanted", what, n, unit, limit)
			}
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
			t.Errorf("%s is no longer too large: remove its reason", what)
		}
	}
}

// room is what is counted of a package.
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

// receiver is the name of the type of a method.
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
