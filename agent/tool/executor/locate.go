package executor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"rouse/agent/tool/shell"
)

// Located is an installed program.
type Located struct {
	Path string   // absolute, with its links resolved
	Read []string // files that the program needs to start, in addition to those that every command can read
	Dir  string   // folder in which the program was found, for PATH; "" for a system folder
}

// Locate finds a program by its name on the PATH of the daemon, or by its path.
func Locate(name string) (Located, error) {
	found, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrDot) { // never use a program in the current folder
		err = exec.ErrNotFound
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return Located{}, fmt.Errorf("%s may not be executed; see its permissions (chmod +x)", name)
	case err != nil && filepath.IsAbs(name):
		return Located{}, fmt.Errorf("there is no program %s; install it, or write the path of the one that is there", name)
	case err != nil && shell.Elsewhere(name) != "":
		return Located{}, fmt.Errorf("the program %q is not on the daemon's PATH (%s); write its whole path: argv: [%s, ...]", name, os.Getenv("PATH"), shell.Elsewhere(name))
	case err != nil:
		return Located{}, fmt.Errorf("there is no program %q on the daemon's PATH (%s); install it, or write its path", name, os.Getenv("PATH"))
	case !filepath.IsAbs(found):
		return Located{}, fmt.Errorf("%q is not found from everywhere; write its whole path", name)
	}

	path, err := filepath.EvalSymlinks(found)
	if err != nil {
		return Located{}, fmt.Errorf("%s leads nowhere: %w", found, err)
	}

	out := Located{Path: path}
	if !shell.IsSystemProgram(found) {
		out.Dir = filepath.Dir(found)
	}
	if !shell.IsSystemProgram(path) {
		out.Read = []string{packageOf(path)}
	}
	return out, nil
}

// packageOf returns the npm package that contains a program, or the program itself.
func packageOf(path string) string {
	const modules = "node_modules"
	parts := strings.Split(filepath.ToSlash(path), "/")
	for i := len(parts) - 2; i > 0; i-- {
		if parts[i-1] != modules {
			continue
		}
		if strings.HasPrefix(parts[i], "@") && i+1 < len(parts)-1 {
			i++
		}
		return filepath.FromSlash(strings.Join(parts[:i+1], "/"))
	}
	return path
}

// Folder is a file or a folder that a program can access in addition to the roots of its run.
type Folder struct {
	Key  string // key of the setting below executor that names it
	Path string
	Own  bool // the program itself may write there
}

// Folders returns the places that influence the program: its HOME, its logins, the files that it
// reads, and the program itself. No other agent may write there.
func (s Settings) Folders(l Located) []Folder {
	out := []Folder{{"home", s.Home, true}}
	for i, login := range s.Login {
		out = append(out, Folder{fmt.Sprintf("login[%d]", i), login.Path, true})
	}
	for i, path := range s.Read {
		out = append(out, Folder{fmt.Sprintf("read[%d]", i), path, false})
	}
	for _, path := range append([]string{l.Path}, l.Read...) {
		if path != "" {
			out = append(out, Folder{"argv[0]", path, false})
		}
	}
	return out
}
