//go:build unix && !linux

package tool

import (
	"os"
	"syscall"

	"rouse/internal/ledger/label"
)

// fileID is the identity of what is at a path, links not followed; zero where there is nothing.
func fileID(path string) label.FileID {
	info, err := os.Lstat(path)
	if err != nil {
		return label.FileID{}
	}

	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return label.FileID{}
	}
	return label.FileID{Device: uint64(s.Dev), Inode: uint64(s.Ino)} //nolint:unconvert // their widths differ between systems
}
