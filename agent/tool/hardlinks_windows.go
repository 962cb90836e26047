package tool

import (
	"os"
	"syscall"
)

// linkCount counts the names of an open file.
func linkCount(f *os.File) (uint64, error) {
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
