//go:build unix

package watcher_test

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// store overwrites the beginning of a file through a memory mapping.
func store(path, text string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()

	page, err := unix.Mmap(int(f.Fd()), 0, len(text), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}

	copy(page, text)
	return errors.Join(unix.Msync(page, unix.MS_SYNC), unix.Munmap(page))
}
