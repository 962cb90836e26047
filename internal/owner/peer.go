package owner

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// PeerError is a connection with a process of another user.
type PeerError struct {
	Uid int
}

func (e *PeerError) Error() string {
	return fmt.Sprintf("the process at the other end belongs to another user (number %d)", e.Uid)
}

// CheckPeer refuses a connection over a Unix socket whose other end is neither of this user nor of root: with
// a *PeerError. Systems that do not tell who is there are left to the modes of files.
func CheckPeer(c net.Conn) error {
	unix, ok := c.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("%T is no connection over a Unix socket", c)
	}

	uid, err := peer(unix)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return nil
	case err != nil:
		return fmt.Errorf("it cannot be seen whose process is at the other end: %w", err)
	case uid != 0 && uid != os.Geteuid():
		return &PeerError{uid}
	}
	return nil
}

// Listener is a listener on a Unix socket that accepts the user's own processes, and root's. Others are hung up on
// before anything is read from them or said to them.
type Listener struct {
	net.Listener
	Refused func(error) // is told of each that was
}

// Accept implements net.Listener.
func (l Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if err = CheckPeer(c); err == nil {
			return c, nil
		}

		c.Close()
		l.Refused(err)
	}
}
