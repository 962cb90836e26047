package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/bmatcuk/doublestar/v4"

	"rouse/skills"
)

// Sources records the files and glob patterns that a configuration was read from. Missing files
// count.
type Sources struct {
	files map[string]sum // the zero sum if a file could not be read
	globs map[string][]string
	trees map[string]string // folders with skills, and their fingerprints
	alike []sum             // sums of the files in reading order, without settings of one node
}

type sum [sha256.Size]byte

// Read reads a file with how and records its checksum.
func (s *Sources) Read(path string, how func(string) ([]byte, error)) ([]byte, error) {
	text, err := how(path)
	if s.files == nil {
		s.files = map[string]sum{}
	}

	// Record unreadable files too, because their appearance is a change.
	if s.files[path] = (sum{}); err == nil {
		s.files[path] = sha256.Sum256(text)
		s.alike = append(s.alike, sumOfShared(text))
	}
	return text, err
}

// sumOfShared returns a checksum without the lines that may differ between nodes.
func sumOfShared(text []byte) (out sum) {
	h := sha256.New()
	for line := range bytes.Lines(text) {
		if !bytes.HasPrefix(line, []byte("home:")) && !bytes.HasPrefix(line, []byte("node:")) {
			h.Write(line)
		}
	}
	return sum(h.Sum(out[:0]))
}

// Alike returns a digest that is equal on all nodes with the same files, whatever their paths.
func (s *Sources) Alike() string {
	h := sha256.New()
	for _, one := range s.alike {
		h.Write(one[:])
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// Glob returns the files that match a pattern, sorted, and records them.
func (s *Sources) Glob(pattern string) ([]string, error) {
	found, err := doublestar.FilepathGlob(pattern, doublestar.WithFilesOnly())
	if err != nil {
		return nil, err
	}

	if s.globs == nil {
		s.globs = map[string][]string{}
	}

	// Sort, because the order of files decides which model is first.
	slices.Sort(found)
	s.globs[pattern] = slices.Clone(found)
	return found, nil
}

// Tree records the fingerprint of a folder with skills.
func (s *Sources) Tree(path string) {
	if s.trees == nil {
		s.trees = map[string]string{}
	}
	s.trees[path] = skills.Fingerprint(path)
}

// Files returns all recorded files, also missing ones.
func (s *Sources) Files() []string { return slices.Sorted(maps.Keys(s.files)) }

// Globs returns the absolute patterns of includes.
func (s *Sources) Globs() []string { return slices.Sorted(maps.Keys(s.globs)) }

// Now reads the same files, patterns and folders again.
func (s *Sources) Now() *Sources {
	now := &Sources{}
	for path := range s.files {
		_, _ = now.Read(path, ReadPlain) // an unreadable file is recorded as such
	}

	for pattern := range s.globs {
		_, _ = now.Glob(pattern) // the pattern was valid before
	}

	for path := range s.trees {
		now.Tree(path)
	}
	return now
}

// Digest returns a digest of all recorded names and content.
func (s *Sources) Digest() string {
	h := sha256.New()
	for _, path := range s.Files() {
		fmt.Fprintf(h, "%q %x\n", path, s.files[path])
	}

	for _, pattern := range s.Globs() {
		fmt.Fprintf(h, "%q %q\n", pattern, s.globs[pattern])
	}

	for _, path := range slices.Sorted(maps.Keys(s.trees)) {
		fmt.Fprintf(h, "%q %s\n", path, s.trees[path])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Look holds the metadata of the files of a configuration, without their content.
type Look struct {
	files map[string]os.FileInfo // nil if the file is missing
	found string                 // digest of the matches of patterns and of the folders with skills
}

// Look reads the metadata of the files. It is cheap enough to run every few seconds.
func (s *Sources) Look() Look {
	l := Look{files: map[string]os.FileInfo{}}
	for path := range s.files {
		l.files[path], _ = os.Stat(path)
	}
	found := &Sources{}
	for pattern := range s.globs {
		_, _ = found.Glob(pattern) // the pattern was valid before
	}
	for path := range s.trees {
		found.Tree(path)
	}
	l.found = found.Digest()
	return l
}

// Equal reports whether both looks found the same files with equal sizes and modification times.
func (l Look) Equal(other Look) bool {
	return l.found == other.found && maps.EqualFunc(l.files, other.files, func(a, b os.FileInfo) bool {
		if a == nil || b == nil {
			return a == b
		}
		return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
	})
}
