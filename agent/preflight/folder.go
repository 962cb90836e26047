package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"rouse/internal/nofollow"
)

// Readable returns why a folder or a file cannot be read, or "".
func Readable(b nofollow.UntrustedDirs, path string) string {
	info, err := b.Stat(path)
	if err != nil {
		return explain(path, err)
	}
	if !info.IsDir() {
		return ""
	}

	folder, err := b.OpenRoot(path)
	if err != nil {
		return explain(path, err)
	}
	return explain(path, errors.Join(allowed(folder, false), folder.Close()))
}

// Folder returns why a folder cannot be listed, or "".
func Folder(b nofollow.UntrustedDirs, path string) string {
	folder, err := b.OpenRoot(path)
	if err != nil {
		return explain(path, err)
	}
	return explain(path, errors.Join(allowed(folder, false), folder.Close()))
}

// Writable returns why files cannot be created in a folder, or "". A run creates a missing folder,
// so Writable then checks the nearest existing folder above.
func Writable(b nofollow.UntrustedDirs, path string) string {
	folder, err := b.OpenRoot(path)
	if err == nil {
		return explain(path, errors.Join(allowed(folder, true), folder.Close()))
	}
	above := filepath.Dir(path)
	if info, bad := b.Stat(above); errors.Is(err, fs.ErrNotExist) || bad != nil || !info.IsDir() { // the folder cannot exist
		if above == path {
			return explain(path, err)
		}
		return Writable(b, above)
	}
	return explain(path, err)
}

// explain describes an error with a path and its remedy. It returns "" for nil.
func explain(path string, err error) string {
	var link *nofollow.LinkError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &link):
		return link.Error()
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("%s is not there; make it, or mount what it lies on", path)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Sprintf("%s is not a folder; put a folder in its place", path)
	case errors.Is(err, syscall.EROFS):
		return fmt.Sprintf("%s lies on a file system that can only be read", path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("%s may not be %s by the user that rouse runs as; change its owner or its mode", path, word(err))
	}
	return fmt.Sprintf("%s cannot be used: %v", path, err)
}

// deniedError is an error of the system about access to a folder.
type deniedError struct {
	write bool
	err   error
}

func (e *deniedError) Error() string { return e.err.Error() }
func (e *deniedError) Unwrap() error { return e.err }

func word(err error) string {
	var denied *deniedError
	if errors.As(err, &denied) && denied.write {
		return "written"
	}
	return "read"
}

// Program returns why a program cannot be started by its path, or "".
func Program(path string) string {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("the program %s is not there; install it", path)
	case err != nil:
		return fmt.Sprintf("the program %s cannot be looked at: %v", path, err)
	case info.IsDir():
		return fmt.Sprintf("%s is a folder, not a program", path)
	case !executable(info):
		return fmt.Sprintf("%s is not executable; chmod +x it", path)
	}
	return ""
}
