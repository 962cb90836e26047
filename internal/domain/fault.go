package domain

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// HostError is a fault of the files that rouse itself depends on, such as the ledger. It ends a run; a model can do nothing
// about it.
type HostError struct{ Err error }

func (e *HostError) Error() string { return e.Err.Error() }

func (e *HostError) Unwrap() error { return e.Err }

// IsFileFault reports whether an error is a fault of the file system or the machine that may pass or concern one path: a
// folder that is gone, a permission, too many open files. A HostError is not, and neither is a failed connection.
func IsFileFault(err error) bool {
	if _, host := errors.AsType[*HostError](err); host {
		return false
	}
	if _, network := errors.AsType[*net.OpError](err); network {
		return false
	}
	var path *fs.PathError
	var link *os.LinkError
	var code syscall.Errno
	return errors.As(err, &path) || errors.As(err, &link) || errors.As(err, &code)
}
