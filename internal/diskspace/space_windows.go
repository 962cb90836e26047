package diskspace

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// Free returns the free space of the volume that contains a folder.
func Free(folder string) (Space, error) {
	name, err := windows.UTF16PtrFromString(folder)
	if err != nil {
		return Space{}, err
	}

	var mine, all, free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &mine, &all, &free); err != nil {
		return Space{}, os.NewSyscallError("GetDiskFreeSpaceEx", err)
	}
	return Space{ID: filepath.VolumeName(folder), Bytes: int64(min(mine, 1<<62))}, nil
}
