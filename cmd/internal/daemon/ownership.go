package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/layout"
	"rouse/internal/owner"
	"rouse/internal/text"
)

// ownHome refuses a home that others could change. One that they could only read becomes its user's alone, who
// gains nothing by that, and mended says what its mode was.
func ownHome(dir string) (mended string, err error) {
	if err := owner.CheckHome(dir); err != nil {
		return "", err
	}

	info, err := os.Stat(dir)
	if err != nil {
		return "", fmt.Errorf("the home folder cannot be used: %w", err)
	}

	mode := info.Mode().Perm()
	if !owner.HasModes || mode&0o077 == 0 {
		return "", nil
	}
	if err := os.Chmod(dir, mode&0o700); err != nil {
		return "", fmt.Errorf("the home folder %s is open to others (mode %#o), and that cannot be mended: %w", dir, mode, err)
	}
	return fmt.Sprintf("%#o", mode), nil
}

// OpenToOthers lists what lies in a home, and the folder of its socket, that users beside its own could read or write,
// with the home itself first. What agents make in their workdirs is theirs to show to whom they like.
func OpenToOthers(home string) (paths []string, err error) {
	if !owner.HasModes {
		return nil, nil
	}

	err = filepath.WalkDir(home, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Type()&fs.ModeSymlink != 0 {
			return err // a link has no mode of its own, and leads to what is not of the home
		}
		if e.IsDir() && !ours(home, path) {
			return fs.SkipDir
		}

		info, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // a file for a moment
		case err != nil:
			return err
		case info.Mode().Perm()&0o077 != 0 && owner.Mine(info):
			paths = append(paths, path)
		}
		return nil
	})

	if folder := filepath.Dir(SocketPath(home)); folder != home {
		if info, statErr := os.Lstat(folder); statErr == nil && info.IsDir() && owner.Mine(info) && info.Mode().Perm()&0o077 != 0 {
			paths = append(paths, folder)
		}
	}
	return paths, err
}

// ours says whether a folder in the home holds what rouse made. Another one may be an agent's workdir, and skills have the
// modes of their source.
func ours(home, path string) bool {
	rel, err := filepath.Rel(home, path)
	if err == nil && layout.Clone(filepath.ToSlash(rel)) {
		return false
	}
	return path == home || layout.Kept(home, path) && !isSkills(home, path)
}

func isSkills(home, path string) bool {
	rel, err := filepath.Rel(home, path)
	part, _ := layout.Of(filepath.ToSlash(rel))
	return err == nil && part.Name == "skills"
}

// FixModes takes away what others may do with what OpenToOthers lists, and returns what it has changed.
func FixModes(home string) (fixed []string, err error) {
	paths, err := OpenToOthers(home)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // there is no home yet
	}

	for _, path := range paths {
		info, statErr := os.Lstat(path)
		if statErr == nil && info.Mode()&fs.ModeSymlink == 0 {
			statErr = os.Chmod(path, info.Mode().Perm()&0o700)
		}
		if err = errors.Join(err, statErr); statErr == nil {
			fixed = append(fixed, path)
		}
	}
	return fixed, err
}

// checkModes names what in the home others could read.
func (d *Daemon) checkModes() api.Check {
	c := api.Check{Name: "modes", OK: true, Detail: "nobody else can read or change what is kept in the home"}
	paths, err := OpenToOthers(d.home.Dir)
	switch {
	case err != nil:
		c.OK, c.Detail, c.Remedy = false, err.Error(), "see the message"
	case len(paths) > 0:
		c.OK, c.Detail, c.Remedy = false, "open to other users by their modes: "+text.List(paths, maxLogged), "rouse doctor --fix"
	}
	return c
}
