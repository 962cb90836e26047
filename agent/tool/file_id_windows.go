package tool

import (
	"syscall"

	"rouse/internal/ledger/label"
)

// fileID returns the identity of the file at a path, without following links. It returns the zero
// FileID if the file does not exist or cannot be inspected.
func fileID(path string) label.FileID {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return label.FileID{}
	}

	// With access mode 0, even a file that another process has opened can be queried.
	// FILE_FLAG_BACKUP_SEMANTICS is required for folders.
	h, err := syscall.CreateFile(name, 0, syscall.FILE_SHARE_READ|syscall.FILE_SHARE_WRITE|syscall.FILE_SHARE_DELETE, nil, syscall.OPEN_EXISTING,
		syscall.FILE_FLAG_BACKUP_SEMANTICS|syscall.FILE_FLAG_OPEN_REPARSE_POINT, 0)
	if err != nil {
		return label.FileID{}
	}
	defer syscall.CloseHandle(h) //nolint:errcheck // nothing was written

	var info syscall.ByHandleFileInformation
	if err := syscall.GetFileInformationByHandle(h, &info); err != nil {
		return label.FileID{}
	}
	return label.FileID{Device: uint64(info.VolumeSerialNumber), Inode: uint64(info.FileIndexHigh)<<32 | uint64(info.FileIndexLow), Born: info.CreationTime.Nanoseconds()}
}
