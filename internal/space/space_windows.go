package space

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// Of returns the free space of the volume that contains a folder.
func Of(folder string) (Left, error) {
	name, err := windows.UTF16PtrFromString(folder)
	if err != nil {
		return Left{}, err
	}

	var mine, all, free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &mine, &all, &free); err != nil {
		return Left{}, os.NewSyscallError("GetDiskFreeSpaceEx", err)
	}
	return Left{ID: filepath.VolumeName(folder), Bytes: int64(min(mine, 1<<62))}, nil
}
