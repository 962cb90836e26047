package hardlink

import (
	"os"
	"syscall"
)

// Count returns the number of names of an open file. If it is more than one, the other names may be
// anywhere.
func Count(f *os.File) (uint64, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}

	var info syscall.ByHandleFileInformation
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = syscall.GetFileInformationByHandle(syscall.Handle(fd), &info) }); err != nil {
		return 0, err
	}
	return uint64(info.NumberOfLinks), failed
}
