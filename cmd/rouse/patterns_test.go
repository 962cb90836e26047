package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestPatterns holds that no package of the program compiles a regular expression before main begins, which every command would wait for, and that
// each that is compiled later can be.
func TestPatterns(t *testing.T) {
	unraced(t)
	t.Parallel()
	tried := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch name := filepath.Base(path); {
		case err != nil:
			return err
		case d.IsDir() && (name == "testdata" || name == ".git"):
			return filepath.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.Contains(filepath.ToSlash(path), "/modeltest/"):
			return nil
		}

		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		for _, declared := range file.Decls {
			if values, ok := declared.(*ast.GenDecl); ok && values.Tok == token.VAR {
				tried += checkPatterns(t, set, values)
			}
		}
		return nil
	})
	if err != nil || tried < 50 {
		t.Errorf("%d patterns, %v", tried, err)
	}
}

// checkPatterns returns how many patterns variables are made of.
func checkPatterns(t *testing.T, set *token.FileSet, variables ast.Node) (tried int) {
	ast.Inspect(variables, func(n ast.Node) bool {
		if _, ok := n.(*ast.FuncLit); ok { // it runs later
			return false
		}
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		function, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of, ok := function.X.(*ast.Ident)
		if !ok {
			return true
		}

		switch of.Name + "." + function.Sel.Name {
		case "regexp.MustCompile":
			t.Errorf("%s: compiled whenever the program starts; write pattern.New", set.Position(call.Pos()))
		case "pattern.New":
			tried++
			expression, err := written(call.Args[0])
			if err == nil {
				_, err = regexp.Compile(expression)
			}
			if err != nil {
				t.Errorf("%s: %v", set.Position(call.Pos()), err)
			}
		}
		return true
	})
	return tried
}

// written is a text that stands in the source, in one piece or several.
func written(e ast.Expr) (string, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return strconv.Unquote(e.Value)
	case *ast.Ident: // a constant of letters
		return "x", nil
	case *ast.BinaryExpr:
		left, err := written(e.X)
		if err != nil {
			return "", err
		}
		right, err := written(e.Y)
		return left + right, err
	}
	return "", strconv.ErrSyntax
}
