//go:build unix

package hardlink

import (
	"os"
	"syscall"
)

// Count returns the number of names of an open file. If it is more than one, the other names may be
// anywhere.
func Count(f *os.File) (uint64, error) {
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
