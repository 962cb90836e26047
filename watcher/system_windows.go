package watcher

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/windows"
)

const openFlags = 0

// identity takes the time of creation for the number that Windows gives a file, which is
// not told without opening it; nothing tells when a file came into its folder.
func identity(info fs.FileInfo) (device, inode uint64, changed int64) {
	st, ok := info.Sys().(*syscall.Win32FileAttributeData)
	if !ok {
		return 0, 0, 0
	}
	return 0, uint64(st.CreationTime.Nanoseconds()), 0
}

// network says whether a folder is on a share.
func network(dir string) string {
	if strings.HasPrefix(dir, `\\`) {
		return "SMB"
	}
	return ""
}

// renameNew renames a file unless the new name is taken: fs.ErrExist.
func renameNew(file, dest fileHandle) error {
	from, err := windows.UTF16PtrFromString(file.path())
	if err != nil {
		return err
	}

	to, err := windows.UTF16PtrFromString(dest.path())
	if err != nil {
		return err
	}

	err = windows.MoveFileEx(from, to, windows.MOVEFILE_WRITE_THROUGH)
	if errors.Is(err, windows.ERROR_NOT_SAME_DEVICE) {
		err = syscall.EXDEV // as the others call it
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: file.path(), New: dest.path(), Err: err}
	}

	return nil
}
