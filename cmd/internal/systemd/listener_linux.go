package systemd

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Listener makes a listener of a socket that was kept, if it listens at just that address and can be nothing else: what is
// passed on is whatever somebody has stored, and the configuration may name another address by now. A port 0 stands for any.
func (k *Kept) Listener(network, address string) (_ net.Listener, err error) {
	defer func() { err = errors.Join(err, k.File.Close()) }()

	raw, err := k.File.SyscallConn()
	if err != nil {
		return nil, err
	}
	var listens, kind int
	var asked error
	err = raw.Control(func(fd uintptr) {
		kind, asked = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TYPE)
		if asked == nil {
			listens, asked = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
		}
	})
	if err := errors.Join(err, asked); err != nil {
		return nil, fmt.Errorf("what was kept as %s is no socket: %w", k.Name, err)
	}
	if kind != syscall.SOCK_STREAM || listens == 0 {
		return nil, fmt.Errorf("what was kept as %s is a socket, but not one that listens", k.Name)
	}

	l, err := net.FileListener(k.File)
	if err != nil {
		return nil, fmt.Errorf("what was kept as %s cannot be listened on: %w", k.Name, err)
	}
	if at := l.Addr(); !sameAddress(at, network, address) {
		return nil, errors.Join(fmt.Errorf("the socket that was kept as %s listens on %s, and %s is wanted", k.Name, at, address), l.Close())
	}
	return l, nil
}

func sameAddress(at net.Addr, network, address string) bool {
	switch at := at.(type) {
	case *net.UnixAddr:
		return network == "unix" && at.Net == "unix" && at.Name == address
	case *net.TCPAddr:
		want, err := net.ResolveTCPAddr("tcp", address)
		return network == "tcp" && err == nil && at.IP.Equal(want.IP) && at.Zone == want.Zone && (want.Port == 0 || at.Port == want.Port)
	}
	return false
}
