package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rouse/cmd/internal/endtoend"
)

// connects lists the packages that may connect without internal/dial, with the reasons why their
// addresses are trusted. All other packages use internal/dial, which checks the address of each
// connection.
var connects = map[string]string{
	"internal/dial":         "it is the dialer",
	"agent/model/wire":      "the base_url of a model is its owner's; redirects are not followed",
	"cmd/internal/api":      "the socket of the daemon",
	"cmd/internal/cluster":  "PostgreSQL, at the address of the configuration",
	"cmd/internal/traces":   "the receiver of the configuration; redirects are not followed",
	"agent/model/modeltest": "tests", "agent/tool/moduleapi/signin/signintest": "tests", "cmd/internal/replicate/target/s3test": "tests",
}

// TestConnections fails if a package outside the list connects without internal/dial.
func TestConnections(t *testing.T) {
	endtoend.Unraced(t)
	t.Parallel()
	const root = "../.."
	used := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch name := filepath.Base(path); {
		case err != nil:
			return err
		case d.IsDir() && (name == "testdata" || name == ".git" || name == "examples"):
			return filepath.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}

		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		in := filepath.ToSlash(rel)
		for _, at := range connections(file) {
			used[in] = true
			if connects[in] == "" {
				t.Errorf("%s: it connects by itself; use rouse/internal/dial, or say in connects why no stranger names the address", set.Position(at))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range connects {
		if !used[name] {
			t.Errorf("%s does not connect by itself any more", name)
		}
	}
}

// connections returns the positions in a file that name a dialer, a transport or a client with the
// default transport.
func connections(file *ast.File) (at []token.Pos) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			if nameOf(n.Type) == "http.Client" && !slices.ContainsFunc(n.Elts, func(e ast.Expr) bool {
				pair, ok := e.(*ast.KeyValueExpr)
				if !ok {
					return false
				}
				key, ok := pair.Key.(*ast.Ident)
				return ok && key.Name == "Transport"
			}) {
				at = append(at, n.Pos())
			}
			if nameOf(n.Type) == "http.Transport" {
				at = append(at, n.Pos())
			}
		case *ast.SelectorExpr:
			if slices.Contains([]string{"net.Dialer", "net.Dial", "net.DialTimeout", "net.DialTCP", "net.DialUnix", "tls.Dial", "tls.Dialer", "http.DefaultClient", "http.DefaultTransport", "http.Get", "http.Post", "http.PostForm", "http.Head"}, nameOf(n)) {
				at = append(at, n.Pos())
			}
		}
		return true
	})
	return at
}

// nameOf returns the qualified name of an identifier from another package, such as net.Dialer.
func nameOf(e ast.Expr) string {
	selector, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	of, ok := selector.X.(*ast.Ident)
	if !ok {
		return ""
	}
	return of.Name + "." + selector.Sel.Name
}
