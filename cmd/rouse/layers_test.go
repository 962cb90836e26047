package main

import (
	"bufio"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// layer is one row of the import table in docs/architecture.md.
type layer struct {
	packages   []string
	mayImport  []string
	everything bool
	later      bool
}

var tableRow = regexp.MustCompile("^\\| \\d \\| `([^`]+)`([^|]*)\\|[^|]*\\|([^|]*)\\|$")

// readLayers parses the table, which is the truth about who may import whom.
func readLayers(t *testing.T) []layer {
	t.Helper()
	f, err := os.Open("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	var layers []layer
	for s := bufio.NewScanner(f); s.Scan(); {
		m := tableRow.FindStringSubmatch(s.Text())
		if m == nil {
			continue
		}

		l := layer{packages: expandBraces(m[1]), later: strings.Contains(m[2], "later")}
		allowed := strings.TrimSpace(m[3])
		l.everything = allowed == "everything"
		if allowed != "–" && !l.everything {
			for name := range strings.SplitSeq(allowed, ",") {
				l.mayImport = append(l.mayImport, strings.TrimSpace(name))
			}
		}

		layers = append(layers, l)
	}
	if len(layers) < 15 {
		t.Fatalf("docs/architecture.md: only %d rows of the import table were understood", len(layers))
	}

	return layers
}

func expandBraces(name string) []string {
	open, rest, found := strings.Cut(name, "{")
	if !found {
		return []string{name}
	}

	inner, tail, _ := strings.Cut(rest, "}")
	var out []string
	for part := range strings.SplitSeq(inner, ",") {
		out = append(out, open+strings.TrimSpace(part)+tail)
	}
	return out
}

type goPackage struct {
	ImportPath string
	Imports    []string
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "rouse/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}

	var packages []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p goPackage
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}

	return packages
}

// leaf says whether a package is one that everybody may import and that imports nothing of the
// module.
func leaf(name string) bool { return strings.HasPrefix(name, "internal/") }

// TestLayers fails on an import that the table of docs/architecture.md does not list,
// on a package that has no row, and on a row without a package that is not marked later.
func TestLayers(t *testing.T) {
	unraced(t)
	t.Parallel()
	rows := map[string]layer{}
	for _, l := range readLayers(t) {
		for _, p := range l.packages {
			rows[p] = l
		}
	}

	seen := map[string]bool{}
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, "rouse/")
		row, ok := rows[name]
		if !ok {
			t.Errorf("package %s has no row in docs/architecture.md", name)
			continue
		}

		seen[name] = true
		if leaf(name) && (row.everything || len(row.mayImport) > 0) {
			t.Errorf("docs/architecture.md lets %s import %v, and a leaf imports nothing of the module", name, row.mayImport)
		}
		if row.everything {
			continue
		}

		for _, imp := range p.Imports {
			dep, ours := strings.CutPrefix(imp, "rouse/")
			if leaf(dep) && !leaf(name) {
				continue
			}

			if ours && !slices.ContainsFunc(row.mayImport, func(pattern string) bool {
				ok, _ := path.Match(pattern, dep)
				return ok
			}) {
				t.Errorf("%s imports %s, which docs/architecture.md does not list for it (it may import %v)", name, dep, row.mayImport)
			}
		}
	}

	for name, row := range rows {
		if !seen[name] && !row.later {
			t.Errorf("docs/architecture.md has a row for %s, which does not exist and is not marked later", name)
		}
	}
}

// maxFanOut is how many rooms a package outside cmd may import. Leaves are not counted, and what lies
// below a package is its own and counts as one.
const maxFanOut = 8

// TestFanOut fails on a package outside cmd that leans on too many others.
func TestFanOut(t *testing.T) {
	unraced(t)
	t.Parallel()
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, "rouse/")
		if strings.HasPrefix(name, "cmd/") {
			continue
		}

		rooms := map[string]bool{}
		for _, imp := range p.Imports {
			dep, ours := strings.CutPrefix(imp, "rouse/")
			if !ours || leaf(dep) {
				continue
			}

			if strings.HasPrefix(dep, name+"/") {
				dep = name + "/…"
			}
			rooms[dep] = true
		}

		if len(rooms) > maxFanOut {
			t.Errorf("%s imports %d rooms, at most %d are wanted: %v", name, len(rooms), maxFanOut, slices.Sorted(maps.Keys(rooms)))
		}
	}
}

// A package that is larger says in a section "# Size" of its doc why it stays one.
const (
	maxFiles   = 40 // .go files in the folder, tests included
	maxExports = 30 // types, functions and variables; constants and methods belong to their types
)

// TestRoomSizes fails on a package that is hard to find one's way in and does not say why.
func TestRoomSizes(t *testing.T) {
	unraced(t)
	t.Parallel()
	for _, p := range listPackages(t) {
		files, err := filepath.Glob(filepath.Join("../..", strings.TrimPrefix(p.ImportPath, "rouse/"), "*.go"))
		if err != nil {
			t.Fatal(err)
		}

		exports, explained := 0, false
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}

			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}

			exports += exportedNames(parsed)
			explained = explained || strings.Contains(parsed.Doc.Text(), "\n# Size\n")
		}

		if (len(files) > maxFiles || exports > maxExports) && !explained {
			t.Errorf("%s has %d files and %d exported names; at most %d and %d are wanted, or a section \"# Size\" in its doc says why", p.ImportPath, len(files), exports, maxFiles, maxExports)
		}
	}
}

// exportedNames counts the exported types, functions and variables of a file.
func exportedNames(f *ast.File) (n int) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.IsExported() {
				n++
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if spec.Name.IsExported() {
						n++
					}
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						if d.Tok == token.VAR && name.IsExported() {
							n++
						}
					}
				}
			}
		}
	}

	return n
}

// TestTopLevel holds the rule that nothing stands beside the named folders.
func TestTopLevel(t *testing.T) {
	unraced(t)
	t.Parallel()
	allowed := strings.Fields("cmd scheduler watcher agent agentdb skills internal examples docs go.mod go.sum config.example.yaml README.md LICENSE CHANGELOG.md")
	out, err := exec.CommandContext(t.Context(), "git", "-C", "../..", "ls-files").Output()
	if err != nil {
		t.Skip("not a git checkout: the files that belong to the project cannot be listed")
	}

	for f := range strings.FieldsSeq(string(out)) {
		top, _, _ := strings.Cut(f, "/")
		if !strings.HasPrefix(top, ".") && !slices.Contains(allowed, top) {
			t.Errorf("%s: nothing but %v and dotfiles stands at the top level", f, allowed)
		}
	}
}
