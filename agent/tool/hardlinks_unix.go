//go:build unix

package tool

import (
	"os"
	"syscall"
)

// linkCount counts the names of an open file.
func linkCount(f *os.File) (uint64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}

	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 1, nil
	}
	return uint64(st.Nlink), nil //nolint:unconvert // its width differs between systems
}
