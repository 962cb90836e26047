package ledger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"rouse/internal/atomicfile"
)

// valueFiles are large values in the folder of a home, each in a file whose name is the hash of its content.
type valueFiles struct {
	dir     string
	roomFor func(write func() error) error // has a write repeated for which there was no room
	inUse   sync.RWMutex                   // held for reading from the write of a file to the row that refers to it
}

// put implements largeValues.
func (v *valueFiles) put(_ context.Context, text string) (string, error) {
	hash := sumOf([]byte(text))
	path := v.path(hash)
	// The size is enough: a file that was cut off is shorter, and is written again.
	// That it has its name does not say that the name is on disk: another call may be about to sync the folder, or was
	// killed before it did.
	if info, err := os.Stat(path); err == nil && info.Size() == int64(len(text)) {
		return hash, errors.Join(atomicfile.SyncFolder(filepath.Dir(path)), atomicfile.SyncFolder(v.dir))
	}
	return hash, v.roomFor(func() error { return writeBlob(path, text) })
}

func (v *valueFiles) path(hash string) string { return filepath.Join(v.dir, hash[:2], hash) }

// writeBlob makes the file and its name durable before a row refers to it, and the name of its
// folder too, which may be new.
func writeBlob(path, text string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}

	err := atomicfile.Stream(path, 0o600, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
	if err != nil {
		return err
	}

	return atomicfile.SyncFolder(filepath.Dir(dir))
}

// get implements largeValues.
func (v *valueFiles) get(_ context.Context, hash string) (json.RawMessage, error) {
	text, err := os.ReadFile(v.path(hash))
	if err != nil {
		return nil, fmt.Errorf("a large value of the record is missing: %w; restore the home from a backup", err)
	}
	if sumOf(text) != hash {
		return nil, fmt.Errorf("a large value of the record is damaged: %s; restore the home from a backup", v.path(hash))
	}
	return text, nil
}

// fault implements largeValues. It holds no more of a value than a part.
func (v *valueFiles) fault(_ context.Context, hash string) string {
	if raw, err := hex.DecodeString(hash); err != nil || len(raw) != sha256.Size {
		return "has no hash for its name"
	}
	f, err := os.Open(v.path(hash))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "has no file"
	case err != nil:
		return "cannot be read: " + err.Error()
	}
	defer f.Close()

	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "cannot be read: " + err.Error()
	}
	if hex.EncodeToString(sum.Sum(nil)) != hash {
		return "has another content than it had"
	}
	return ""
}

// hold implements largeValues: from the file to the row that refers to it, prune must not take the file for an orphan.
func (v *valueFiles) hold() (release func()) {
	v.inUse.RLock()
	return v.inUse.RUnlock
}

// exclude implements largeValues: nobody may start to refer to a file between the query for its references and its removal.
func (v *valueFiles) exclude() (release func()) {
	v.inUse.Lock()
	return v.inUse.Unlock
}

// remove implements largeValues.
func (v *valueFiles) remove(hashes []string) error {
	for _, h := range hashes {
		if err := os.Remove(v.path(h)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
