//go:build !(linux && (amd64 || arm64))

package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Child returns at once: only Linux starts commands through this binary.
func Child() {}

// findProgram is the file that Argv names, as the command's own PATH says, and never from the folder it runs in.
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
			continue
		}
		if found, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
			return found, nil
		}
	}

	return "", fmt.Errorf("no folder of the command's PATH (%q) has a program %s: %w", path, name, exec.ErrNotFound)
}

// plainResult is how a process ended that has no keeper.
func plainResult(state *os.ProcessState, signal string) Result {
	return Result{Exit: state.ExitCode(), Signal: signal, CPU: state.UserTime() + state.SystemTime()}
}
