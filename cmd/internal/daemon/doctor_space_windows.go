package daemon

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// spaceOf says what the volume of a folder has left.
func spaceOf(folder string) (space, error) {
	name, err := windows.UTF16PtrFromString(folder)
	if err != nil {
		return space{}, err
	}

	var mine, all, free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &mine, &all, &free); err != nil {
		return space{}, os.NewSyscallError("GetDiskFreeSpaceEx", err)
	}
	return space{id: filepath.VolumeName(folder), bytes: int64(min(mine, 1<<62))}, nil
}
