package awaketest

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

// Logind is what a test has for logind.
type Logind struct {
	mu          sync.Mutex
	asked       []string
	refuses     bool
	held, given *os.File // the end that is kept of what was given, and what was given
}

// New starts a bus with a logind, and has it be that of the system. The test is skipped where no bus can be started.
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
		_ = c.Wait() // it was killed
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

// Refuse has it refuse what it is asked from now on.
func (l *Logind) Refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuses = true
}

// Asked is what it was asked, the arguments of each call.
func (l *Logind) Asked() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string{}, l.asked...)
}

// Holds says whether anybody keeps the machine awake, by what was given last. Where somebody does it waits as long as most for the end.
func (l *Logind) Holds(t *testing.T, most time.Duration) bool {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		return false
	}

	if err := l.given.Close(); err != nil && !errors.Is(err, os.ErrClosed) { // what was sent is a file of its own
		t.Fatal(err)
	}
	if err := l.held.SetReadDeadline(time.Now().Add(most)); err != nil {
		t.Fatal(err)
	}
	_, err := l.held.Read(make([]byte, 1))
	return !errors.Is(err, io.EOF)
}

// methods are those of logind.
type methods struct{ *Logind }

// Inhibit gives a file that holds as long as it is open.
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
