package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"rouse/cmd/internal/endtoend"
)

// doors lists the folders and files that start programs, each with the reason. All programs of
// agents and users start through the launcher of agent/tool/shell, which masks, labels and limits
// them.
var doors = map[string]string{
	"agent/tool/shell/":                  "the door",
	"agent/sandbox/":                     "confines what the door starts",
	"agent/programs/programs.go":         "makes the sandboxes of the door",
	"agent/preview/":                     "rouse itself, without folders and network",
	"skills/module/":                     "rouse itself, without folders and network",
	"agent/checkout/":                    "git of the host, which reads no configuration of a clone; what reads the objects of a clone is confined",
	"skills/install/fetch.go":            "git of the installer, which reads no configuration of where it works",
	"cmd/internal/doctor/confinement.go": "tries the sandbox, with no program of others",
	"cmd/internal/service/":              "the service manager of the system",
	"cmd/rouse/dashboard.go":             "the browser of the owner",
	"internal/nosleep/nosleep_darwin.go": "caffeinate of the system",

	"cmd/internal/replicate/target/s3test/": "for tests",
	"internal/nosleep/nosleeptest/":         "for tests",
	"internal/powercut/":                    "for tests",
	"cmd/internal/endtoend/":                "for tests",
}

// startedBy lists the functions and types that start a program, by package.
var startedBy = map[string][]string{
	"os/exec":             {"Command", "CommandContext", "Cmd"},
	"os":                  {"StartProcess"},
	"syscall":             {"ForkExec", "StartProcess", "Exec"},
	"rouse/agent/sandbox": {"New", "Command"},
}

// TestOneDoor fails if a file outside the list starts a program, or if an entry of the list is no
// longer needed.
func TestOneDoor(t *testing.T) {
	endtoend.Unraced(t)
	t.Parallel()
	used := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch name := filepath.Base(path); {
		case err != nil:
			return err
		case d.IsDir() && (name == "testdata" || name == ".git"):
			return filepath.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}

		starts, err := startsPrograms(path)
		if err != nil || starts == "" {
			return err
		}
		name := strings.TrimPrefix(filepath.ToSlash(path), "../../")
		for at := range doors {
			if name == at || strings.HasSuffix(at, "/") && strings.HasPrefix(name, at) {
				used[at] = true
				return nil
			}
		}
		t.Errorf("%s uses %s: start programs of others with the launcher of agent/tool/shell, or name the file here with the reason", name, starts)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for at := range doors {
		if !used[at] {
			t.Errorf("%s starts no program any more; take it out", at)
		}
	}
}

// startsPrograms returns the name with which a file starts programs, or "" if it starts none.
func startsPrograms(path string) (out string, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		return "", err
	}
	names := map[string][]string{} // by the package name in this file
	for _, one := range file.Imports {
		at := strings.Trim(one.Path.Value, `"`)
		name := at[strings.LastIndex(at, "/")+1:]
		if one.Name != nil {
			name = one.Name.Name
		}
		names[name] = startedBy[at]
	}

	// A type that is only an argument or a result starts no program. Values and calls do.
	see := func(e ast.Expr) {
		if s, ok := e.(*ast.SelectorExpr); ok {
			if in, ok := s.X.(*ast.Ident); ok {
				for _, name := range names[in.Name] {
					if s.Sel.Name == name {
						out = in.Name + "." + name
					}
				}
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			see(n.Fun)
		case *ast.CompositeLit:
			see(n.Type)
		}
		return true
	})
	return out, nil
}
