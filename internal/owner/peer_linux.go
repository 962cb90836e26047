package owner

import (
	"cmp"
	"net"

	"golang.org/x/sys/unix"
)

// peer returns the user who opened the other end, at the time of the connection.
func peer(c *net.UnixConn) (uid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}

	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = cmp.Or(err, failed); err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}
