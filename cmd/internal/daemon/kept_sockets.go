package daemon

import (
	"context"
	"net"
	"slices"
	"strings"
	"syscall"

	"rouse/cmd/internal/systemd"
)

// Names under which systemd keeps the sockets. That of the home has an identity behind it: see socketName.
const (
	homeSocketPrefix = "home."
	networkSocket    = "dashboard"
)

// keeps says whether sockets are kept over a restart.
func (s *supervision) keeps() bool { return s != nil && s.link != nil }

// socket is the listener of the home's socket that was kept, nil if there is none that can be used.
func (s *supervision) socket(path string) net.Listener {
	if !s.keeps() {
		return nil
	}

	// Meanwhile a command may have listened there: then nobody who asks would get through to what was kept.
	name := socketName(path)
	return s.take(s.link.Claim(func(n string) bool { return strings.HasPrefix(n, homeSocketPrefix) }), "unix", path, func(n string) bool { return n == name })
}

// take is the first of some sockets that listens where it should. The others are refused, and systemd forgets them.
func (s *supervision) take(kept []*systemd.Kept, network, address string, current func(name string) bool) (out net.Listener) {
	for _, k := range kept {
		why := "it is no longer what leads there"
		if out == nil && current(k.Name) {
			l, err := k.Listener(network, address)
			if err == nil {
				out = l
				s.note(k.Name)
				continue
			}
			why = err.Error()
		} else if err := k.File.Close(); err != nil {
			s.tell(err)
		}

		s.d.log.Warn("a socket that was kept over the restart is not used", "name", k.Name, "wanted", address, "reason", why)
		s.tell(s.link.Forget(k.Name))
	}
	return out
}

// keepSocket has the new socket of the home kept.
func (s *supervision) keepSocket(path string, l net.Listener) {
	unix, ok := l.(*net.UnixListener)
	name := ""
	if s.keeps() {
		name = socketName(path)
	}
	if !ok || name == "" {
		return
	}

	if s.keep(name, unix) {
		unix.SetUnlinkOnClose(false) // it has to be found while nobody listens
	}
}

func (s *supervision) keep(name string, l syscall.Conn) bool {
	if err := s.link.Keep(name, l); err != nil {
		s.d.log.Warn("a socket is not kept over a restart: who asks meanwhile will be refused", "name", name, "error", err)
		return false
	}
	s.note(name)
	return true
}

// listenTCP listens at an address of the network, on the socket that was kept if there is one.
func (s *supervision) listenTCP(ctx context.Context, address string) (net.Listener, error) {
	if s.keeps() {
		mine := func(n string) bool { return n == networkSocket }
		if l := s.take(s.link.Claim(mine), "tcp", address, mine); l != nil {
			return l, nil
		}
	}

	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if tcp, ok := l.(*net.TCPListener); err == nil && ok && s.keeps() {
		s.keep(networkSocket, tcp)
	}
	return l, err
}

// dropOthers has systemd forget what it has kept and nobody wants any more.
func (s *supervision) dropOthers() {
	if s.keeps() {
		s.take(s.link.Claim(func(string) bool { return true }), "", "nothing", func(string) bool { return false })
	}
}

// abandon has systemd forget all: the daemon does not come up, and nobody would answer.
func (s *supervision) abandon() {
	s.mu.Lock()
	names := slices.Clone(s.stored)
	s.mu.Unlock()
	for _, name := range names {
		s.tell(s.link.Forget(name))
	}
}

func (s *supervision) note(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.stored, name) {
		s.stored = append(s.stored, name)
	}
}
