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

// File is a file of a skill.
type File struct {
	Path       string `json:"path"` // slash-separated, relative to the skill
	Bytes      int64  `json:"bytes"`
	Executable bool   `json:"executable"`
	Link       string `json:"link,omitempty"` // target, if the file is a link
}

// RefusedError reports an entry that no skill may contain.
type RefusedError struct {
	Dir, Path, Why string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%q in the skill in %s is refused: %s; remove it if you do not know it", e.Path, e.Dir, e.Why)
}

// Hash returns the content hash of a skill, as in the lock file. It is the SHA-256 over the path,
// executable bit, type and SHA-256 of each file, sorted by path. It ignores times and owners. It
// returns a RefusedError if the folder contains a refused entry.
func Hash(dir string) (string, error) {
	_, hash, err := Files(dir)
	return hash, err
}

// Files returns the files of a skill and their hash. They are shown before the skill is trusted.
func Files(dir string) (files []File, hash string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, "", err
	}
	defer root.Close()

	all := sha256.New()
	for f, err := range skills.Walk(root) { // the hash depends on the order
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

// digest returns the SHA-256 of a file's content, or of a link's target path.
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

// errChanged reports that the files in a folder do not match a hash.
var errChanged = errors.New("its files are others")

// compare returns errChanged if the files in dir do not match hash.
func compare(dir, hash string) error {
	now, err := Hash(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && now != hash {
		return errChanged
	}
	return err
}
