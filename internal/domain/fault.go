package domain

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// HostError reports an error of the files that rouse itself depends on, such as the ledger. It ends
// the run, because a model cannot correct it.
type HostError struct{ Err error }

func (e *HostError) Error() string { return e.Err.Error() }

func (e *HostError) Unwrap() error { return e.Err }

// IsFileFault reports whether an error of the file system may be temporary or concern only one
// path: for example a missing folder, a permission or too many open files. HostError values and
// failed connections are not file faults.
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
