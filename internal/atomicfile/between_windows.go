package atomicfile

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// MoveNew renames a file or folder. It returns fs.ErrExist if the new name is taken.
func MoveNew(file, dest Name) error {
	from, err := windows.UTF16PtrFromString(file.Path())
	if err != nil {
		return err
	}

	to, err := windows.UTF16PtrFromString(dest.Path())
	if err != nil {
		return err
	}

	err = windows.MoveFileEx(from, to, windows.MOVEFILE_WRITE_THROUGH)
	if errors.Is(err, windows.ERROR_NOT_SAME_DEVICE) {
		err = syscall.EXDEV // as on other systems
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: file.Path(), New: dest.Path(), Err: err}
	}

	return nil
}
