//go:build !linux && !darwin

package owner

import (
	"errors"
	"net"
)

// peer returns errors.ErrUnsupported.
func peer(*net.UnixConn) (uid int, err error) { return 0, errors.ErrUnsupported }
