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

// Readable says what keeps a folder, or a file, from being read, "" when nothing does.
func Readable(b nofollow.Boundary, path string) string {
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

// Folder says what keeps a folder from being listed, "" when nothing does.
func Folder(b nofollow.Boundary, path string) string {
	folder, err := b.OpenRoot(path)
	if err != nil {
		return explain(path, err)
	}
	return explain(path, errors.Join(allowed(folder, false), folder.Close()))
}

// Writable says what keeps files from being made in a folder, "" when nothing does. One that is missing is made, and
// so it is the nearest one above it that counts.
func Writable(b nofollow.Boundary, path string) string {
	folder, err := b.OpenRoot(path)
	if err == nil {
		return explain(path, errors.Join(allowed(folder, true), folder.Close()))
	}
	above := filepath.Dir(path)
	if info, bad := b.Stat(above); errors.Is(err, fs.ErrNotExist) || bad != nil || !info.IsDir() { // then it cannot be there
		if above == path {
			return explain(path, err)
		}
		return Writable(b, above)
	}
	return explain(path, err)
}

// explain says what is wrong with a path in words that tell what to do, "" for nil.
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

// deniedError is what the system does not allow in a folder.
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

// Program says what keeps a program from being started by its path, "" when nothing does.
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
