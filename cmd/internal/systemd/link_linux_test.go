package systemd

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// manager is the end of systemd: a socket that datagrams come to.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

func newManager(t *testing.T, address string) *manager {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &manager{t, conn}
}

// next is what was said next, and the files that came with it.
func (m *manager) next() (said string, files []int) {
	m.t.Helper()
	text, rights := make([]byte, 8192), make([]byte, 1024)
	if err := m.conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		m.t.Fatal(err)
	}
	n, oob, _, _, err := m.conn.ReadMsgUnix(text, rights)
	if err != nil {
		m.t.Fatal(err)
	}

	messages, err := syscall.ParseSocketControlMessage(rights[:oob])
	if err != nil {
		m.t.Fatal(err)
	}
	for _, message := range messages {
		fds, err := syscall.ParseUnixRights(&message)
		if err != nil {
			m.t.Fatal(err)
		}
		files = append(files, fds...)
	}
	return string(text[:n]), files
}

// take is Take with an environment.
func take(t *testing.T, env map[string]string) (*Link, error) {
	t.Helper()
	for _, name := range variables {
		t.Setenv(name, env[name])
	}
	l, err := Take()
	for _, name := range variables {
		if value, set := os.LookupEnv(name); set {
			t.Errorf("%s=%s is left for children", name, value)
		}
	}
	return l, err
}

// What is said arrives in the words of sd_notify(3), at a path and at an abstract address.
func TestSays(t *testing.T) {
	for _, address := range []string{filepath.Join(t.TempDir(), "notify"), "@rouse-test-" + strconv.Itoa(os.Getpid())} {
		m := newManager(t, address)
		l, err := take(t, map[string]string{"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "180000000", "WATCHDOG_PID": strconv.Itoa(os.Getpid())})
		if err != nil {
			t.Fatal(err)
		}
		if l.Watchdog() != 3*time.Minute {
			t.Errorf("watchdog %v", l.Watchdog())
		}

		for want, say := range map[string]func() error{
			"READY=1\nSTATUS=serves 3 jobs":                      func() error { return l.Ready("serves 3 jobs") },
			"WATCHDOG=1\nSTATUS=a b":                             func() error { return l.Well("a\nb") },
			"STOPPING=1\nSTATUS=x":                               func() error { return l.Stopping("x") },
			"EXTEND_TIMEOUT_USEC=20000000":                       func() error { return l.MoreTime(20 * time.Second) },
			"FDSTOREREMOVE=1\nFDNAME=dashboard":                  func() error { return l.Forget("dashboard") },
			"STATUS=" + strings.Repeat("x", 4096-len("STATUS=")): func() error { return l.Status(strings.Repeat("x", 9000)) },
		} {
			if err := say(); err != nil {
				t.Fatal(err)
			}
			if got, files := m.next(); got != want || len(files) != 0 {
				t.Errorf("%q with %d files, want %q", got, len(files), want)
			}
		}

		before, _ := monotonic()
		if err := l.Reloading(); err != nil {
			t.Fatal(err)
		}
		got, _ := m.next()
		usec, found := "", false
		for line := range strings.Lines(got) {
			if after, ok := strings.CutPrefix(strings.TrimSpace(line), "MONOTONIC_USEC="); ok {
				usec, found = after, true
			}
		}
		if n, err := strconv.ParseInt(usec, 10, 64); !found || err != nil || n < before.Microseconds() || !strings.HasPrefix(got, "RELOADING=1\n") {
			t.Errorf("%q, and it was %v", got, before)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What was meant for another process is not believed, and nobody who is not there is told anything.
func TestNotForUs(t *testing.T) {
	address := filepath.Join(t.TempDir(), "notify")
	newManager(t, address)
	other := strconv.Itoa(os.Getppid())

	l, err := take(t, map[string]string{"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000", "WATCHDOG_PID": other, "LISTEN_PID": other, "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b"})
	if err != nil || l.Watchdog() != 0 || len(l.Claim(func(string) bool { return true })) != 0 {
		t.Errorf("%v, watchdog %v", err, l.Watchdog())
	}

	if l, err := take(t, nil); l != nil || err != nil || l.Ready("x") != nil || l.Watchdog() != 0 || l.Close() != nil {
		t.Errorf("%v, %v", l, err)
	}
	for _, bad := range []string{"relative", "vsock:2:1", filepath.Join(t.TempDir(), "nobody")} {
		if l, err := take(t, map[string]string{"NOTIFY_SOCKET": bad}); l != nil || err == nil {
			t.Errorf("%s: %v, %v", bad, l, err)
		}
	}
}

// A socket that was kept is the same socket to a process that is started with it, where it is the one that is wanted; any
// other file is refused with words.
func TestKept(t *testing.T) {
	if os.Getenv("TEST_KEPT") != "" {
		keptChild()
		return
	}

	dir := t.TempDir()
	address := filepath.Join(dir, "notify")
	m := newManager(t, address)
	l, err := take(t, map[string]string{"NOTIFY_SOCKET": address})
	if err != nil {
		t.Fatal(err)
	}

	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	unix, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close()
	client, err := net.Dial("tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	var files []*os.File
	for name, socket := range map[string]any{"tcp": tcp, "unix": unix, "client": client} {
		conn, ok := socket.(syscall.Conn)
		if !ok {
			t.Fatal(name)
		}
		if err := l.Keep(name, conn); err != nil {
			t.Fatal(err)
		}
		said, got := m.next()
		if said != "FDSTORE=1\nFDNAME="+name+"\nFDPOLL=0" || len(got) != 1 {
			t.Fatalf("%q with %d files", said, len(got))
		}
		files = append(files, os.NewFile(uintptr(got[0]), name))
	}
	plain, err := os.Create(filepath.Join(dir, "plain"))
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, plain)

	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name()
	}
	names[len(names)-1] = "plain"
	// The shell becomes the process: its number is known to it alone.
	c := exec.CommandContext(t.Context(), "/bin/sh", "-c", `LISTEN_PID=$$ exec "$0" -test.run '^TestKept$'`, os.Args[0])
	c.Env = append(os.Environ(), "TEST_KEPT="+tcp.Addr().String()+" "+filepath.Join(dir, "s"), "NOTIFY_SOCKET="+address,
		"LISTEN_FDS="+strconv.Itoa(len(files)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	c.ExtraFiles = files
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	at := tcp.Addr().String()
	for _, want := range []string{
		"kept client,tcp,unix\n", "tcp at its address: listens\n", "unix at its address: listens\n",
		"tcp elsewhere: the socket that was kept as tcp listens on " + at + ", and 127.0.0.1:1 is wanted\n",
		"unix as tcp: the socket that was kept as unix listens on",
		"client: what was kept as client is a socket, but not one that listens\n",
		"inherited by children: 0\n",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// keptChild says what it makes of the files that it was started with.
func keptChild() {
	tcp, unix, _ := strings.Cut(os.Getenv("TEST_KEPT"), " ")
	l, err := Take()
	if err != nil {
		os.Stdout.WriteString(err.Error() + "\n")
		return
	}
	kept := map[string]*Kept{}
	var names []string
	for _, k := range l.Claim(func(string) bool { return true }) {
		kept[k.Name] = k
		names = append(names, k.Name)
	}
	slices.Sort(names)
	say := func(parts ...string) { os.Stdout.WriteString(strings.Join(parts, "") + "\n") }
	say("kept ", strings.Join(names, ","))

	try := func(what, name, network, address string) {
		k := kept[name]
		again, err := syscall.Dup(int(k.File.Fd()))
		if err != nil {
			say(err.Error())
			return
		}
		syscall.CloseOnExec(again)
		got, err := (&Kept{Name: name, File: os.NewFile(uintptr(again), name)}).Listener(network, address)
		if err != nil {
			say(what, ": ", err.Error())
			return
		}
		say(what, ": listens")
		got.Close()
	}
	try("tcp at its address", "tcp", "tcp", tcp)
	try("tcp elsewhere", "tcp", "tcp", "127.0.0.1:1")
	try("unix at its address", "unix", "unix", unix)
	try("unix as tcp", "unix", "tcp", tcp)
	try("client", "client", "tcp", tcp)

	out, err := exec.Command("/bin/sh", "-c", "ls -l /proc/self/fd | grep -c socket:").Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) { // grep fails where it finds none
		say(err.Error())
	}
	say("inherited by children: ", strings.TrimSpace(string(out)))
}
