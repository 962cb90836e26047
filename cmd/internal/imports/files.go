package imports

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"rouse/internal/text"
)

const (
	// MaxFile is the maximum size of a file, in bytes.
	MaxFile = 1 << 20
	// maxFiles is the maximum number of files in a directory.
	maxFiles = 1000
	// MaxJobs is the maximum number of jobs per import.
	MaxJobs = 2000
)

// File is an input file.
type File struct {
	Name string
	Text string
}

// ReadFile reads the named file. If the name is "-", it reads from in.
func ReadFile(name string, in io.Reader) (File, error) {
	if name == "-" {
		return read("standard input", in)
	}

	f, err := os.Open(name) //nolint:gosec // the user names the file
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	if s, err := f.Stat(); err == nil && !s.Mode().IsRegular() {
		return File{}, fmt.Errorf("%s is no file", name)
	}
	return read(name, f)
}

func read(name string, from io.Reader) (File, error) {
	raw, err := io.ReadAll(io.LimitReader(from, MaxFile+1))
	switch {
	case err != nil:
		return File{}, err
	case len(raw) > MaxFile:
		return File{}, fmt.Errorf("%s is larger than %s, which no file of jobs is", name, text.Size(MaxFile))
	case !utf8.Valid(raw):
		return File{}, fmt.Errorf("%s is not text in UTF-8: convert it first, as with iconv -f latin1 -t utf-8", name)
	}
	return File{Name: name, Text: strings.ReplaceAll(strings.TrimPrefix(string(raw), "\ufeff"), "\r\n", "\n")}, nil
}

// ReadFolder reads the files in a directory that have one of the given name endings. skipped lists
// all other entries, including symbolic links.
func ReadFolder(dir string, endings ...string) (files []File, skipped []string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()

	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		switch {
		case !e.Type().IsRegular() || !hasEnding(e.Name(), endings):
			skipped = append(skipped, e.Name())
			continue
		case len(files) == maxFiles:
			return nil, nil, fmt.Errorf("%s holds more than %d files", dir, maxFiles)
		}

		one, err := readBelow(root, e.Name())
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", filepath.Join(dir, e.Name()), err)
		}
		files = append(files, one)
	}
	return files, skipped, nil
}

// ReadBeside reads those of the named files that exist in the directory of the given file. It does
// not follow symbolic links in that directory.
func ReadBeside(file string, names ...string) (out []File, err error) {
	root, err := os.OpenRoot(filepath.Dir(file))
	if err != nil {
		return nil, err
	}
	defer root.Close()

	for _, name := range names {
		one, err := readBelow(root, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		default:
			out = append(out, one)
		}
	}
	return out, nil
}

// readBelow reads a regular file of a directory. It returns fs.ErrNotExist for a symbolic link.
func readBelow(root *os.Root, name string) (File, error) {
	if s, err := root.Lstat(name); err != nil || !s.Mode().IsRegular() {
		return File{}, errors.Join(err, fs.ErrNotExist)
	}
	f, err := root.Open(name)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	return read(name, f)
}

func hasEnding(name string, endings []string) bool {
	return slices.ContainsFunc(endings, func(e string) bool { return strings.HasSuffix(name, e) })
}
