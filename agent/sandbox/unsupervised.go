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

// Child returns at once, because commands are started through this binary only on Linux.
func Child() {}

// withSelf replaces the program by the path of this binary, which the command may read.
func (c Command) withSelf() (Command, error) {
	self, err := os.Executable()
	if err == nil {
		c.Argv, c.Read = append([]string{self}, c.Argv[1:]...), append(slices.Clone(c.Read), self)
	}
	return c, err
}

// findProgram looks up Argv[0] in the command's PATH, never in its working folder.
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
			continue // relative to the working folder, which the command may have written
		}
		if found, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
			return found, nil
		}
	}

	return "", fmt.Errorf("no folder of the command's PATH (%q) has a program %s: %w", path, name, exec.ErrNotFound)
}

// plainResult returns the result of a process without a supervisor.
func plainResult(state *os.ProcessState, signal string) Result {
	return Result{Exit: state.ExitCode(), Signal: signal, CPU: state.UserTime() + state.SystemTime()}
}
