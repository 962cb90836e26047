package file_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/tool"
	"rouse/agent/tool/file"
)

// BenchmarkSearch searches 10,000 files in the page cache: go test -bench Search.
func BenchmarkSearch(b *testing.B) {
	dir := b.TempDir()
	for i := range 10_000 {
		path := filepath.Join(dir, fmt.Sprintf("m%d", i/1000), fmt.Sprintf("p%02d", i/100%10), fmt.Sprintf("f%05d.go", i))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Repeat("return the value of a name in a struct\n", 60)), 0o644); err != nil {
			b.Fatal(err)
		}
	}

	roots, err := tool.NewRoots(dir, nil)
	if err != nil {
		b.Fatal(err)
	}

	tools, err := file.Tools(file.Options{Roots: roots})
	if err != nil {
		b.Fatal(err)
	}

	r, err := tool.NewRegistry(tools...)
	if err != nil {
		b.Fatal(err)
	}

	for name, args := range map[string]string{"content": `{"pattern":"needle"}`, "names": `{"pattern":"f*99.go","target":"files"}`} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if e, err := r.Call(b.Context(), tool.Invocation{}, "file_search", []byte(args)); err != nil || !e.OK {
					b.Fatal(e, err)
				}
			}
		})
	}
}
