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

// Sources records the files, also missing ones, and patterns that a configuration was read from.
type Sources struct {
	files map[string]sum // the zero sum of what could not be read
	globs map[string][]string
	trees map[string]string // folders in which skills are looked for, and their stamps
	alike []sum             // of the files in the order of their reading, without what is a node's own
}

type sum [sha256.Size]byte

// Read reads a file and remembers what was in it.
func (s *Sources) Read(path string, how func(string) ([]byte, error)) ([]byte, error) {
	text, err := how(path)
	if s.files == nil {
		s.files = map[string]sum{}
	}

	// A file that could not be read is remembered too: when it appears, that is a change.
	if s.files[path] = (sum{}); err == nil {
		s.files[path] = sha256.Sum256(text)
		s.alike = append(s.alike, sumOfShared(text))
	}
	return text, err
}

// sumOfShared leaves out the lines that the configurations of nodes may say differently.
func sumOfShared(text []byte) (out sum) {
	h := sha256.New()
	for line := range bytes.Lines(text) {
		if !bytes.HasPrefix(line, []byte("home:")) && !bytes.HasPrefix(line, []byte("node:")) {
			h.Write(line)
		}
	}
	return sum(h.Sum(out[:0]))
}

// Alike is the same for nodes that read the same files, wherever those lie.
func (s *Sources) Alike() string {
	h := sha256.New()
	for _, one := range s.alike {
		h.Write(one[:])
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

func (s *Sources) Glob(pattern string) ([]string, error) {
	found, err := doublestar.FilepathGlob(pattern, doublestar.WithFilesOnly())
	if err != nil {
		return nil, err
	}

	if s.globs == nil {
		s.globs = map[string][]string{}
	}

	// Sorted: the order of files decides about the first model, and must not depend on the disk.
	slices.Sort(found)
	s.globs[pattern] = slices.Clone(found)
	return found, nil
}

// Tree remembers which skills a folder holds, or that it is one.
func (s *Sources) Tree(path string) {
	if s.trees == nil {
		s.trees = map[string]string{}
	}
	s.trees[path] = skills.Fingerprint(path)
}

// Files are all files that were looked for.
func (s *Sources) Files() []string { return slices.Sorted(maps.Keys(s.files)) }

// Globs are the patterns of includes, absolute.
func (s *Sources) Globs() []string { return slices.Sorted(maps.Keys(s.globs)) }

// Now looks at the same places again.
func (s *Sources) Now() *Sources {
	now := &Sources{}
	for path := range s.files {
		_, _ = now.Read(path, ReadPlain) // that it cannot be read is what is remembered
	}

	for pattern := range s.globs {
		_, _ = now.Glob(pattern) // it was no broken one before
	}

	for path := range s.trees {
		now.Tree(path)
	}
	return now
}

// Digest is the same for the same names with the same content.
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

// Look is what the files of a configuration look like, without their content.
type Look struct {
	files map[string]os.FileInfo // nil if a file is missing
	found string                 // by the patterns, and in the folders of skills
}

// Look looks at the files. That is cheap enough to be done every few seconds.
func (s *Sources) Look() Look {
	l := Look{files: map[string]os.FileInfo{}}
	for path := range s.files {
		l.files[path], _ = os.Stat(path)
	}
	found := &Sources{}
	for pattern := range s.globs {
		_, _ = found.Glob(pattern) // it was no broken one before
	}
	for path := range s.trees {
		found.Tree(path)
	}
	l.found = found.Digest()
	return l
}

// Equal reports whether two looks have found the same files with the same sizes and times.
func (l Look) Equal(other Look) bool {
	return l.found == other.found && maps.EqualFunc(l.files, other.files, func(a, b os.FileInfo) bool {
		if a == nil || b == nil {
			return a == b
		}
		return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
	})
}
