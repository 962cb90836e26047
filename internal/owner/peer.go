package owner

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// PeerError reports a connection to a process of another user.
type PeerError struct {
	Uid int
}

func (e *PeerError) Error() string {
	return fmt.Sprintf("the process at the other end belongs to another user (number %d)", e.Uid)
}

// CheckPeer returns a *PeerError unless the other end of a Unix socket belongs to this user or
// root. If the system does not report the peer, CheckPeer returns nil; the mode of the socket has
// to protect it.
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

// Listener is a listener on a Unix socket that accepts only processes of this user and root. It
// closes other connections before any data is exchanged.
type Listener struct {
	net.Listener
	Refused func(error) // called for each refused connection
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
