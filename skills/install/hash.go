package install

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"rouse/skills"
)

// File is one file of a skill.
type File struct {
	Path       string `json:"path"` // below the skill, with slashes
	Bytes      int64  `json:"bytes"`
	Executable bool   `json:"executable"`
	Link       string `json:"link,omitempty"` // target, if it is a link
}

// RefusedError is an entry that no skill may contain.
type RefusedError struct {
	Dir, Path, Why string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%q in the skill in %s is refused: %s; remove it if you do not know it", e.Path, e.Dir, e.Why)
}

// Hash returns the hash of a skill's content in the lock file: SHA-256 over path, executable bit, kind and
// SHA-256 of each file, sorted by path. Times and owners do not count. It fails with a RefusedError if
// the folder contains what no skill may.
func Hash(dir string) (string, error) {
	_, hash, err := Files(dir)
	return hash, err
}

// Files returns the files of a skill with their hash, which are shown before the skill is trusted.
func Files(dir string) (files []File, hash string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, "", err
	}
	defer root.Close()

	all := sha256.New()
	for f, err := range skills.Walk(root) { // in an order on which the hash depends
		switch {
		case err != nil:
			return nil, "", fmt.Errorf("the files of %s cannot be read: %w", dir, err)
		case f.Refused != "":
			return nil, "", &RefusedError{dir, f.Path, f.Refused}
		case f.Mode.IsDir():
			continue
		}

		sum, err := digest(f)
		if err != nil {
			return nil, "", err
		}
		file := File{f.Path, f.Bytes, f.Mode&0o111 != 0, f.Link}
		fmt.Fprintf(all, "%q %t %s %s\n", file.Path, file.Executable, f.Mode.Type(), sum)
		files = append(files, file)
	}
	return files, hex.EncodeToString(all.Sum(nil)), nil
}

// digest returns the SHA-256 of a file, or of the target of a link.
func digest(f skills.File) (string, error) {
	from := io.NopCloser(strings.NewReader(f.Link))
	if f.Link == "" {
		file, err := f.Open()
		if err != nil {
			return "", err
		}
		from = file
	}
	defer from.Close()

	h := sha256.New()
	_, err := io.Copy(h, from)
	return hex.EncodeToString(h.Sum(nil)), err
}

// errChanged reports that the files of a folder do not have a hash.
var errChanged = errors.New("its files are others")

// compare returns errChanged if the files of a folder do not have a hash.
func compare(dir, hash string) error {
	now, err := Hash(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && now != hash {
		return errChanged
	}
	return err
}
