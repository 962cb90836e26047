package watcher

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

// stamp is what a file looks like from outside; as long as it stays, the content does.
type stamp struct {
	device, inode uint64
	size          int64
	changed       time.Time
}

func stampOf(info fs.FileInfo) stamp {
	device, inode := identity(info)
	return stamp{device, inode, info.Size(), info.ModTime()}
}

func (s stamp) equal(o stamp) bool {
	return s.device == o.device && s.inode == o.inode && s.size == o.size && s.changed.Equal(o.changed)
}

var errChanged = errors.New("the file changed while it was read")

// hashFile reads a file once. errChanged when it was not the same at the end.
func hashFile(path string, expected stamp) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	after, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if !stampOf(before).equal(expected) || !stampOf(after).equal(expected) {
		return "", errChanged
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// maxCached bounds the hashes that are remembered.
const maxCached = 100_000

// hashes remembers contents by what their files look like, so that a scan reads only what
// changed.
type hashes struct{ known map[string]hashed }

type hashed struct {
	stamp stamp
	hash  string
}

func (h *hashes) get(path string, s stamp) (string, bool) {
	k, ok := h.known[path]
	return k.hash, ok && k.stamp.equal(s)
}

func (h *hashes) put(path string, s stamp, hash string) {
	if h.known == nil || len(h.known) >= maxCached {
		h.known = map[string]hashed{}
	}
	h.known[path] = hashed{s, hash}
}
