package bench

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// floorSource is the floor program. It comes along as text, because it must not have the libraries of this program in it.
//
//go:embed floor/main.go
var floorSource []byte

// buildFloor builds the floor program with the versions of the libraries that this program has, into a folder. It takes a Go toolchain,
// and the modules from its cache or its proxy.
func buildFloor(ctx context.Context, dir string) (program string, err error) {
	tool, err := exec.LookPath("go")
	if err != nil {
		return "", fmt.Errorf("it is built with a Go toolchain, and there is none in $PATH: %w", err)
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", fmt.Errorf("this build does not say which versions of its libraries it has")
	}

	// Their sums too: the libraries are those that this program was built of.
	var mod, sums strings.Builder
	mod.WriteString("module floor\n\ngo 1.26.0\n\nrequire (\n")
	for _, m := range info.Deps {
		if m.Replace == nil {
			fmt.Fprintf(&mod, "\t%s %s\n", m.Path, m.Version)
			fmt.Fprintf(&sums, "%s %s %s\n", m.Path, m.Version, m.Sum)
		}
	}
	mod.WriteString(")\n")

	for name, text := range map[string]string{"go.mod": mod.String(), "go.sum": sums.String(), "main.go": string(floorSource)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return "", err
		}
	}

	program = filepath.Join(dir, "floor")
	build := exec.CommandContext(ctx, tool, "build", "-mod=mod", "-ldflags", "-s -w", "-o", program, ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return program, nil
}
