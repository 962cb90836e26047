package nosleeptest

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// Logind is a fake logind.
type Logind struct {
	mu      sync.Mutex
	asked   []string
	refuses bool
	// held is the read end of the last pipe. given is its write end, which the caller got.
	held, given *os.File
}

// New starts a bus with a fake logind and makes it the system bus. It skips the test if no bus can
// be started.
func New(t *testing.T) *Logind {
	t.Helper()
	program, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("there is no dbus-daemon here")
	}

	c := exec.CommandContext(t.Context(), program, "--session", "--nofork", "--print-address")
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait() // always fails after Kill
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}

	bus, err := dbus.Connect(strings.TrimSpace(address))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bus.Close() })
	l := &Logind{}
	err = bus.Export(methods{l}, "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
	if err == nil {
		_, err = bus.RequestName("org.freedesktop.login1", dbus.NameFlagDoNotQueue)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", strings.TrimSpace(address))
	return l
}

// Refuse makes all later requests fail.
func (l *Logind) Refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuses = true
}

// Asked returns the arguments of each request.
func (l *Logind) Asked() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string{}, l.asked...)
}

// Holds reports whether the last file returned is still open. It waits at most that long for the
// file to be closed.
func (l *Logind) Holds(t *testing.T, most time.Duration) bool {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		return false
	}

	// The caller has its own duplicate.
	if err := l.given.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		t.Fatal(err)
	}
	if err := l.held.SetReadDeadline(time.Now().Add(most)); err != nil {
		t.Fatal(err)
	}
	_, err := l.held.Read(make([]byte, 1))
	return !errors.Is(err, io.EOF)
}

// methods implements the D-Bus methods of logind.
type methods struct{ *Logind }

// Inhibit returns a file that keeps the machine awake while it is open.
func (m methods) Inhibit(what, who, why, mode string) (dbus.UnixFD, *dbus.Error) {
	l := m.Logind
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, strings.Join([]string{what, who, why, mode}, ", "))
	if l.refuses {
		return 0, dbus.NewError("org.freedesktop.DBus.Error.InteractiveAuthorizationRequired", []any{"Interactive authentication required."})
	}

	var err error
	if l.held, l.given, err = os.Pipe(); err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	return dbus.UnixFD(l.given.Fd()), nil
}
