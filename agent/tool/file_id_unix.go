//go:build unix && !linux

package tool

import (
	"os"
	"syscall"

	"rouse/internal/ledger/label"
)

// fileID returns the identity of the file at a path, without following links. It returns the zero
// FileID if the file does not exist or cannot be inspected.
func fileID(path string) label.FileID {
	info, err := os.Lstat(path)
	if err != nil {
		return label.FileID{}
	}

	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return label.FileID{}
	}
	return label.FileID{Device: uint64(s.Dev), Inode: uint64(s.Ino)} //nolint:unconvert // the field widths differ between systems
}
