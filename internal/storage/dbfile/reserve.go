package dbfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"rouse/internal/diskspace"
)

// Reserve is a file beside a database, PATH-reserve, that reserves disk space for running work when
// the disk is full. The caller releases it as soon as a write does not fit. After that, the caller
// must not start new work until Keep has recreated the reserve.
type Reserve struct {
	path string
	size int64
	gone atomic.Bool
}

// NewReserve returns a reserve of size bytes for a database. The file is created by Keep.
func NewReserve(database string, size int64) *Reserve {
	return &Reserve{path: database + "-reserve", size: size}
}

// Release removes the reserve file, if it exists, to free its space.
func (r *Reserve) Release() error {
	r.gone.Store(true)
	if err := os.Remove(r.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the room that was kept for a full disk cannot be freed: %w", err)
	}
	return nil
}

// Gone reports whether the reserve was released or could not be created.
func (r *Reserve) Gone() bool { return r.gone.Load() }

// Keep creates the reserve file if it does not exist. It requires twice that much free space, so
// that pending writes do not exhaust the disk again at once. A disk without enough space is not an
// error: Gone then returns true.
func (r *Reserve) Keep() error {
	if info, err := os.Lstat(r.path); err == nil && info.Mode().IsRegular() && info.Size() == r.size {
		r.gone.Store(false)
		return nil
	}

	left, err := diskspace.Free(filepath.Dir(r.path))
	if err == nil && left.Bytes < r.Needs() {
		r.gone.Store(true)
		return nil
	}

	err = r.create()
	r.gone.Store(full(err))
	if err != nil && !full(err) {
		return fmt.Errorf("no room can be kept for a full disk: %w", err)
	}
	return nil
}

// Needs returns the free space that Keep requires to recreate the reserve, in bytes.
func (r *Reserve) Needs() int64 { return 2 * r.size }

func (r *Reserve) create() (err error) {
	// A file of a different size was left by a killed process or by another version.
	if err := os.Remove(r.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}

	if err = allocate(f, r.size); errors.Is(err, errors.ErrUnsupported) {
		// Write random data, because a file of zeros may be compressed and take no space.
		_, err = io.CopyN(f, rand.Reader, r.size)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(r.path))
	}
	return nil
}

func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }
