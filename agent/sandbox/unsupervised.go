//go:build !(linux && (amd64 || arm64))

package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Child returns at once: commands are started through this binary on Linux only.
func Child() {}

// withSelf names this binary by its path, which the command may read.
func (c Command) withSelf() (Command, error) {
	self, err := os.Executable()
	if err == nil {
		c.Argv, c.Read = append([]string{self}, c.Argv[1:]...), append(slices.Clone(c.Read), self)
	}
	return c, err
}

// findProgram looks Argv[0] up in the command's own PATH, never in the folder that it runs in.
func findProgram(c Command, dir string) (string, error) {
	name := c.Argv[0]
	if strings.ContainsRune(name, filepath.Separator) || (runtime.GOOS == "windows" && strings.ContainsAny(name, `/:`)) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return exec.LookPath(name)
	}

	path := ""
	for _, setting := range c.Env {
		key, value, _ := strings.Cut(setting, "=")
		if key == "PATH" || (runtime.GOOS == "windows" && strings.EqualFold(key, "PATH")) {
			path = value
		}
	}

	for _, folder := range filepath.SplitList(path) {
		if !filepath.IsAbs(folder) {
			continue // it would be one below the working folder, which the command may have written
		}
		if found, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
			return found, nil
		}
	}

	return "", fmt.Errorf("no folder of the command's PATH (%q) has a program %s: %w", path, name, exec.ErrNotFound)
}

// plainResult is how a process ended that has no supervisor.
func plainResult(state *os.ProcessState, signal string) Result {
	return Result{Exit: state.ExitCode(), Signal: signal, CPU: state.UserTime() + state.SystemTime()}
}
