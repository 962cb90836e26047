package module

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"rouse/skills"
)

// EntryFile is the main file of an executable skill's program.
const EntryFile = "module.ts"

// Limits of the sources.
const (
	maxFile = 1 << 20 // in bytes
	// maxSources is the total size in bytes of all files in a folder that a module could import.
	maxSources = 8 << 20
	maxFiles   = 500
	maxEntries = 20_000 // files and folders of any kind
	maxDepth   = 8      // levels of folders
)

// extensions are the file extensions that a module can import.
var extensions = []string{".ts", ".mts", ".js", ".mjs", ".json"}

// sources are the files in a folder that a module could import, by slash-separated relative path.
type sources struct {
	Files map[string]string
	// Large holds the size in bytes of files that are too large to import.
	Large map[string]int64 `json:",omitempty"`
}

// readSources reads the sources in dir. It opens only regular files and does not follow links.
func readSources(dir string) (_ *sources, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()

	s := &sources{Files: map[string]string{}, Large: map[string]int64{}}
	left, seen := maxSources, 0
	for f, err := range skills.Walk(root) {
		if err != nil {
			return nil, fmt.Errorf("the module in %s cannot be read: %w", dir, err)
		}
		if seen++; seen > maxEntries {
			return nil, fmt.Errorf("%s has over %d files and folders; move what does not belong to the skill out of it", dir, maxEntries)
		}
		if !importable(f) {
			continue
		}
		if len(s.Files)+len(s.Large) == maxFiles {
			return nil, fmt.Errorf("%s has over %d files that a module could import; move what is not imported out of it", dir, maxFiles)
		}

		text, err := readSource(root, f.Path)
		if err != nil {
			return nil, fmt.Errorf("the module in %s cannot be read: %w", dir, err)
		}
		if size := max(f.Bytes, int64(len(text))); size > maxFile {
			s.Large[f.Path] = size
			continue
		}
		if left -= len(text); left < 0 {
			return nil, fmt.Errorf("what a module could import from %s comes to over %d MiB; move what is not imported out of it", dir, maxSources>>20)
		}
		s.Files[f.Path] = text
	}
	return s, nil
}

// importable reports whether a module can import a file. Files in hidden folders, in node_modules,
// or at a deep level are excluded.
func importable(f skills.File) bool {
	folders := strings.Split(f.Path, "/")
	folders = folders[:len(folders)-1]
	return f.Refused == "" && f.Mode.IsRegular() && slices.Contains(extensions, path.Ext(f.Path)) && len(folders) <= maxDepth &&
		!slices.ContainsFunc(folders, func(name string) bool { return strings.HasPrefix(name, ".") || name == "node_modules" })
}

// readSource reads a file, up to one byte more than the maximum size. It checks the type again,
// because the file may have been replaced since it was listed.
func readSource(root *os.Root, name string) (string, error) {
	f, err := root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|openFlags, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", errors.Join(err, fmt.Errorf("%s is not a file", name))
	}
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	return string(content), err
}

// hash returns a hash of the names and contents of all files.
func (s *sources) hash() string {
	h := sha256.New()
	part := func(text string) {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(text)))
		h.Write(size[:])
		io.WriteString(h, text) //nolint:errcheck // a hash never fails
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
