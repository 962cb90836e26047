package module

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// EntryFile is the program of an executable skill (OSL-01).
const EntryFile = "module.ts"

// Bounds of what is compiled.
const (
	maxFile    = 1 << 20 // bytes
	maxSources = 8 << 20 // bytes, of all files of a folder that a module could import
	maxFiles   = 500
	maxEntries = 20_000 // of all kinds
	maxDepth   = 8      // folders
)

// extensions are those of files that a module may import.
var extensions = []string{".ts", ".mts", ".js", ".mjs", ".json"}

// sources are the files of a folder that a module could import, by their paths below it, with slashes.
type sources struct {
	Files map[string]string
	Large map[string]int64 `json:",omitempty"` // files that are too large to be imported, with their bytes
}

// readSources reads them. Links are not followed, whatever they lead to; nor is anything that is no file opened.
func readSources(dir string) (_ *sources, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()

	s := &sources{Files: map[string]string{}, Large: map[string]int64{}}
	left, seen := maxSources, 0
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		if seen++; seen > maxEntries {
			return fmt.Errorf("%s has over %d files and folders; move what does not belong to the skill out of it", dir, maxEntries)
		}

		if e.IsDir() {
			if name != "." && (strings.HasPrefix(e.Name(), ".") || e.Name() == "node_modules") || strings.Count(name, "/") >= maxDepth {
				return fs.SkipDir
			}
			return nil
		}

		if !e.Type().IsRegular() || !slices.Contains(extensions, path.Ext(name)) {
			return nil
		}

		if len(s.Files)+len(s.Large) == maxFiles {
			return fmt.Errorf("%s has over %d files that a module could import; move what is not imported out of it", dir, maxFiles)
		}

		text, size, err := readSource(root, name)
		if err != nil {
			return err
		}
		if size > maxFile {
			s.Large[name] = size
			return nil
		}

		if left -= len(text); left < 0 {
			return fmt.Errorf("what a module could import from %s comes to over %d MiB; move what is not imported out of it", dir, maxSources>>20)
		}

		s.Files[name] = text
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("the module in %s cannot be read: %w", dir, err)
	}

	return s, nil
}

// readSource reads a file that is not larger than it may be.
func readSource(root *os.Root, name string) (text string, size int64, err error) {
	f, err := openRegular(root, filepath.FromSlash(name))
	if err != nil {
		return "", 0, err
	}
	defer f.Close()

	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil || len(content) <= maxFile {
		return string(content), int64(len(content)), err
	}

	info, err := f.Stat()
	if err != nil {
		return "", 0, err
	}
	return "", max(info.Size(), maxFile+1), nil
}

// openRegular opens a file that is one. It was listed as one, and may have been replaced since.
func openRegular(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, err
	}

	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}

	return f, nil
}

// hash is of all the files and their names.
func (s *sources) hash() string {
	h := sha256.New()
	part := func(text string) {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(text)))
		h.Write(size[:])
		io.WriteString(h, text) //nolint:errcheck // a hash takes everything
	}

	for _, name := range slices.Sorted(maps.Keys(s.Files)) {
		part(name)
		part(s.Files[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.Large)) {
		part(name)
	}

	return hex.EncodeToString(h.Sum(nil))
}
