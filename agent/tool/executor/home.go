package executor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"rouse/agent/tool/shell"
	"rouse/internal/fspath"
	"rouse/internal/nofollow"
)

// prepareHome creates the HOME of a program, with links to the owner's logins under the same names.
func prepareHome(b nofollow.UntrustedDirs, s Settings) error {
	home, err := b.MakeRoot(s.Home, 0o700)
	if err != nil {
		return fmt.Errorf("the program's HOME %s cannot be made: %w", s.Home, err)
	}
	defer home.Close()

	for _, l := range s.Login {
		if _, err := os.Stat(l.Path); err != nil {
			return fmt.Errorf("the login %s is not there; sign in with the program first, or take it out of executor.login", l.Path)
		}
		if err := link(home, nameAtHome(l.Path), l.Path); err != nil {
			return err
		}
	}
	return nil
}

// nameAtHome returns the path of a file relative to its owner's HOME, or its base name if it is
// elsewhere.
func nameAtHome(path string) string {
	if own, err := os.UserHomeDir(); err == nil {
		if rel, ok := fspath.Rel(own, path); ok && rel != "." {
			return rel
		}
	}
	return filepath.Base(path)
}

// link creates a symbolic link in the program's HOME. It does not replace files of the program.
func link(home *os.Root, name, to string) error {
	if dir := filepath.Dir(name); dir != "." {
		in, err := nofollow.MakeBelow(home, dir, 0o700)
		if err != nil {
			return fmt.Errorf("the login %s cannot be brought into the program's HOME: %w", to, err)
		}
		defer in.Close()
		home, name = in, filepath.Base(name)
	}

	info, err := home.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("the login %s cannot be brought into the program's HOME: %w", to, err)
	case info.Mode().Type() != fs.ModeSymlink:
		return fmt.Errorf("the login %s cannot be brought into the program's HOME: the program keeps %s there by itself; remove one of the two", to, filepath.Join(home.Name(), name))
	default:
		if at, err := home.Readlink(name); err == nil && at == to {
			return nil
		}
		if err := home.Remove(name); err != nil {
			return err
		}
	}
	return home.Symlink(to, name)
}

// launch returns the program to start.
func (p *program) launch(argv []string, prompt string) shell.Program {
	s := p.Settings
	l := shell.Program{
		Argv: append([]string{p.Located.Path}, argv[1:]...), Env: append([]string{"HOME=" + s.Home}, s.Env...), Memory: s.Memory,
		Read: append(append([]string(nil), s.Read...), p.Located.Read...), Write: []string{s.Home}, Network: s.Network, Idle: p.Bounds.Idle,
	}
	if p.Located.Dir != "" { // the interpreter of the program may be in the same folder
		l.Env = append([]string{"PATH=" + p.Located.Dir + string(filepath.ListSeparator) + shell.SearchPath()}, l.Env...)
	}
	for _, login := range s.Login {
		if login.Write {
			l.Write = append(l.Write, login.Path)
		} else {
			l.Read = append(l.Read, login.Path)
		}
	}
	if !s.Prompt {
		l.Stdin = strings.NewReader(prompt)
	}
	return l
}

func nameOf(setting string) string {
	name, _, _ := strings.Cut(setting, "=")
	return name
}
