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

	"rouse/internal/space"
)

// Reserve is room on the disk of a database for the time when there is none left: a file beside it, PATH-reserve, which is removed as
// soon as a write does not fit. What is under way can end in that room, and nothing new should begin until Keep has made it again.
type Reserve struct {
	path string
	size int64
	gone atomic.Bool
}

// NewReserve is the reserve of a database, of size bytes. It is not made before Keep.
func NewReserve(database string, size int64) *Reserve {
	return &Reserve{path: database + "-reserve", size: size}
}

// Release frees the room, where it is still kept.
func (r *Reserve) Release() error {
	r.gone.Store(true)
	if err := os.Remove(r.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the room that was kept for a full disk cannot be freed: %w", err)
	}
	return nil
}

// Gone says that the room was used, or could not be had.
func (r *Reserve) Gone() bool { return r.gone.Load() }

// Keep makes the reserve where it is not there. That takes as much again, so that what could not be written before does not use it up at
// once; without it the reserve is gone, which is no error.
func (r *Reserve) Keep() error {
	if info, err := os.Lstat(r.path); err == nil && info.Mode().IsRegular() && info.Size() == r.size {
		r.gone.Store(false)
		return nil
	}

	left, err := space.Of(filepath.Dir(r.path))
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

// Needs is how much has to be free before the reserve is made again, in bytes.
func (r *Reserve) Needs() int64 { return 2 * r.size }

func (r *Reserve) create() (err error) {
	// One of another size is of a process that was killed while it wrote, or of another version.
	if err := os.Remove(r.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}

	if err = allocate(f, r.size); errors.Is(err, errors.ErrUnsupported) {
		// What cannot be compressed: a file of zeros may take no room.
		_, err = io.CopyN(f, rand.Reader, r.size)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(r.path))
	}
	return nil
}

func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }
