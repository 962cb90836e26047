package watcher

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"sync"
	"time"
)

var errChanged = errors.New("the file changed while it was read")

// maxHashes bounds each half of the hashes that are remembered: some 10 MB in all.
const maxHashes = 1 << 16

// hashes caches content hashes by the stamps of files, so that bytes are read once: not again
// for another job, nor before a file is moved away. All folders share it.
type hashes struct {
	stampHasher stampHasher
	mu          sync.Mutex
	known       *recent[[sha256.Size]byte]
}

func newHashes() *hashes {
	return &hashes{stampHasher: newStampHasher(), known: newRecent[[sha256.Size]byte](maxHashes)}
}

// of is the SHA-256 of a file that looks like expected, in hexadecimal; errChanged when it
// does not, or not any more once it has been read.
func (h *hashes) of(ctx context.Context, file fileHandle, expected stamp) (string, error) {
	// An inode identifies a file under all its names; without one the path has to.
	where := ""
	if expected.inode == 0 {
		where = file.path()
	}

	k := h.stampHasher.of(where, expected)
	h.mu.Lock()
	sum, ok := h.known.get(k)
	h.mu.Unlock()
	if ok {
		return hex.EncodeToString(sum[:]), nil
	}

	sum, err := hashFile(ctx, file, expected)
	if err != nil {
		return "", err
	}

	if expected.stable(time.Now()) {
		h.mu.Lock()
		h.known.put(k, sum)
		h.mu.Unlock()
	}

	return hex.EncodeToString(sum[:]), nil
}

func hashFile(ctx context.Context, file fileHandle, expected stamp) (sum [sha256.Size]byte, err error) {
	f, err := file.open()
	if err != nil {
		return sum, err
	}
	defer f.Close()

	before, err := f.Stat()
	if err != nil {
		return sum, err
	}
	if !before.Mode().IsRegular() || !stampOf(before).same(expected) {
		return sum, errChanged
	}

	h := sha256.New()
	if _, err := io.Copy(h, ctxReader{ctx, f}); err != nil {
		return sum, err
	}

	// By its name, not the open file: another one may have replaced it meanwhile.
	after, err := file.lstat()
	if err != nil {
		return sum, err
	}
	if !stampOf(after).same(expected) {
		return sum, errChanged
	}

	return [sha256.Size]byte(h.Sum(nil)), nil
}

// ctxReader fails once its context ends: a long read must not hold up a stop.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (r ctxReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
