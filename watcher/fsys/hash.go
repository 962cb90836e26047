package fsys

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"sync"
	"time"
)

// ErrChanged means that a file no longer has the expected stamp.
var ErrChanged = errors.New("the file changed while it was read")

// maxHashes is the number of cached hashes in each half of the cache, which then takes about 10 MB.
const maxHashes = 1 << 16

// Hashes caches the content hashes of files by their stamps. Content that was read for one job is
// not read again for another job, or before the file is moved.
type Hashes struct {
	stampHasher Keyer
	mu          sync.Mutex
	known       *Cache[[sha256.Size]byte]
}

// NewHashes returns an empty cache.
func NewHashes() *Hashes {
	return &Hashes{stampHasher: NewKeyer(), known: NewCache[[sha256.Size]byte](maxHashes)}
}

// Of returns the SHA-256 of a file in hexadecimal. It returns ErrChanged if the file does not have
// the expected stamp before or after the read.
func (h *Hashes) Of(ctx context.Context, file Handle, expected Stamp) (string, error) {
	// An inode identifies a file under all its names. Without an inode, the path identifies it.
	where := ""
	if expected.Inode == 0 {
		where = file.Path()
	}

	k := h.stampHasher.Of(where, expected)
	h.mu.Lock()
	sum, ok := h.known.Get(k)
	h.mu.Unlock()
	if ok {
		return hex.EncodeToString(sum[:]), nil
	}

	sum, err := hashFile(ctx, file, expected)
	if err != nil {
		return "", err
	}

	if expected.Stable(time.Now()) {
		h.mu.Lock()
		h.known.Put(k, sum)
		h.mu.Unlock()
	}

	return hex.EncodeToString(sum[:]), nil
}

func hashFile(ctx context.Context, file Handle, expected Stamp) (sum [sha256.Size]byte, err error) {
	f, err := file.Open()
	if err != nil {
		return sum, err
	}
	defer f.Close()

	before, err := f.Stat()
	if err != nil {
		return sum, err
	}
	if !before.Mode().IsRegular() || !StampOf(before).Same(expected) {
		return sum, ErrChanged
	}

	h := sha256.New()
	if _, err := io.Copy(h, ContextReader(ctx, f)); err != nil {
		return sum, err
	}

	// Check the name, not the open file, because another file may have replaced it in the meantime.
	after, err := file.Lstat()
	if err != nil {
		return sum, err
	}
	if !StampOf(after).Same(expected) {
		return sum, ErrChanged
	}

	return [sha256.Size]byte(h.Sum(nil)), nil
}

// ContextReader wraps r. The reader returns the error of ctx once ctx has ended, so that a long
// read does not delay a stop.
func ContextReader(ctx context.Context, r io.Reader) io.Reader { return ctxReader{ctx, r} }

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
