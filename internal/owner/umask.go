package owner

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// formerUmask is the variable of the environment in which Tighten leaves the umask of before. The umask is
// the process's, and so is this; programs of agents get an environment of their own, without it.
const formerUmask = "ROUSE_FORMER_UMASK"

// defaultUmask is what systems set unless somebody changes it.
const defaultUmask = 0o022

// Umask is the umask that the user had before Tighten, which the programs of agents are given back.
func Umask() fs.FileMode {
	if n, err := strconv.ParseUint(os.Getenv(formerUmask), 8, 9); err == nil {
		return fs.FileMode(n)
	}
	return defaultUmask
}

// Usual narrows a mode as the umask of before would have. Files and folders that are made for others than this
// process (in workdirs, exports) are given it with Chmod.
func Usual(mode fs.FileMode) fs.FileMode { return mode &^ Umask() }

// MakeFolders is os.MkdirAll for folders that are made for others, too: those that did not exist have
// the usual mode.
func MakeFolders(path string) error { return makeFolders(host{}, filepath.Clean(path)) }

// MakeFoldersIn is MakeFolders within a root.
func MakeFoldersIn(root *os.Root, path string) error { return makeFolders(root, filepath.Clean(path)) }

// files is what makeFolders needs of a file system.
type files interface {
	Mkdir(name string, mode fs.FileMode) error
	Stat(name string) (fs.FileInfo, error)
	Chmod(name string, mode fs.FileMode) error
}

// host is the file system of the host.
type host struct{}

func (host) Mkdir(name string, mode fs.FileMode) error { return os.Mkdir(name, mode) }
func (host) Stat(name string) (fs.FileInfo, error)     { return os.Stat(name) }
func (host) Chmod(name string, mode fs.FileMode) error { return os.Chmod(name, mode) }

func makeFolders(in files, path string) error {
	info, err := in.Stat(path)
	if err == nil && info.IsDir() {
		return nil
	}

	if above := filepath.Dir(path); errors.Is(err, fs.ErrNotExist) && above != path {
		if err := makeFolders(in, above); err != nil {
			return err
		}
	}

	switch err := in.Mkdir(path, 0o755); {
	case errors.Is(err, fs.ErrExist):
		// Somebody made it meanwhile, and it is as they want it; or it is no folder.
		if info, statErr := in.Stat(path); statErr != nil || !info.IsDir() {
			return err
		}
		return nil
	case err != nil:
		return err
	}
	return in.Chmod(path, Usual(0o755))
}
