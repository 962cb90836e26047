//go:build !linux

package systemd

import (
	"errors"
	"net"
)

// Listener fails: nobody passes sockets on here.
func (k *Kept) Listener(string, string) (net.Listener, error) {
	return nil, errors.New("sockets are not kept on this system")
}
