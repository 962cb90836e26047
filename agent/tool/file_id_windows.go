package tool

import (
	"syscall"

	"rouse/internal/ledger/label"
)

// fileID is the identity of what is at a path, links not followed; zero where there is nothing.
func fileID(path string) label.FileID {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return label.FileID{}
	}

	// Without access rights it can be asked even of what others have opened; folders need the first flag.
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
