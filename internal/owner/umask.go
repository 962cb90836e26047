package owner

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// formerUmask is the environment variable in which Tighten stores the previous umask. Programs of
// agents get their own environment without it.
const formerUmask = "ROUSE_FORMER_UMASK"

// defaultUmask is the usual umask of operating systems.
const defaultUmask = 0o022

// Umask returns the user's umask from before RestrictUmask. Programs of agents run with it.
func Umask() fs.FileMode {
	if n, err := strconv.ParseUint(os.Getenv(formerUmask), 8, 9); err == nil {
		return fs.FileMode(n)
	}
	return defaultUmask
}

// ApplyUmask applies the umask from before RestrictUmask to a mode. Use it with Chmod for files and
// folders that other programs need, for example in workdirs and exports.
func ApplyUmask(mode fs.FileMode) fs.FileMode { return mode &^ Umask() }

// MakeFolders is like os.MkdirAll, for folders that other programs need. New folders get the mode
// Usual(0o755).
func MakeFolders(path string) error { return makeFolders(host{}, filepath.Clean(path)) }

// MakeFoldersIn is like MakeFolders, within a root.
func MakeFoldersIn(root *os.Root, path string) error { return makeFolders(root, filepath.Clean(path)) }

// files is the set of file system operations that makeFolders needs.
type files interface {
	Mkdir(name string, mode fs.FileMode) error
	Stat(name string) (fs.FileInfo, error)
	Chmod(name string, mode fs.FileMode) error
}

// host is the operating system's file system.
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
		// Another process created it: keep its mode. Or it is not a folder.
		if info, statErr := in.Stat(path); statErr != nil || !info.IsDir() {
			return err
		}
		return nil
	case err != nil:
		return err
	}
	return in.Chmod(path, ApplyUmask(0o755))
}
