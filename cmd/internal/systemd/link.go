package systemd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// variables are what systemd tells a daemon by. They are for it alone: a child that had them could speak in its name.
var variables = []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID", "FDSTORE"}

const (
	// maxState bounds one message, in bytes, as systemd does.
	maxState = 4096
	// sayWithin is how long a message may wait for room at systemd.
	sayWithin = 2 * time.Second
)

// Link is a daemon's way to the systemd that started it. All methods do nothing for nil, and are safe for concurrent use.
type Link struct {
	conn     *net.UnixConn
	watchdog time.Duration

	mu   sync.Mutex
	kept []*Kept
}

// Kept is a socket that systemd has kept while the daemon was started again.
type Kept struct {
	Name string // that it was stored under
	File *os.File
}

// Take reads what systemd has told this process and removes it from the environment, so that no child finds it. It belongs
// before anything else starts a process. nil without an error: nobody waits for word of this process.
func Take() (*Link, error) {
	told := map[string]string{}
	for _, name := range variables {
		told[name] = os.Getenv(name)
		if err := os.Unsetenv(name); err != nil {
			return nil, err
		}
	}

	// Meant for another process, as in a shell that systemd started: then the numbers are of files of ours.
	mine := strconv.Itoa(os.Getpid())
	var kept []*Kept
	if told["LISTEN_PID"] == mine {
		kept = takeFiles(told["LISTEN_FDS"], told["LISTEN_FDNAMES"])
	}

	address := told["NOTIFY_SOCKET"]
	if address == "" {
		// Nobody could be told to forget them.
		return nil, closeAll(kept)
	}
	if !strings.HasPrefix(address, "/") && !strings.HasPrefix(address, "@") {
		return nil, errors.Join(fmt.Errorf("NOTIFY_SOCKET is %q, which is no address of a Unix socket", address), closeAll(kept))
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the service manager cannot be told anything (NOTIFY_SOCKET): %w", err), closeAll(kept))
	}

	l := &Link{conn: conn, kept: kept}
	// The watchdog of a parent is not for us.
	if pid := told["WATCHDOG_PID"]; pid == "" || pid == mine {
		if usec, err := strconv.ParseInt(told["WATCHDOG_USEC"], 10, 64); err == nil && usec > 0 {
			l.watchdog = time.Duration(usec) * time.Microsecond
		}
	}
	return l, nil
}

func closeAll(kept []*Kept) error {
	var errs []error
	for _, k := range kept {
		errs = append(errs, k.File.Close())
	}
	return errors.Join(errs...)
}

// Watchdog is how long systemd waits for the next word that all is well; 0: it does not.
func (l *Link) Watchdog() time.Duration {
	if l == nil {
		return 0
	}
	return l.watchdog
}

// Ready says that all is up, or up again after Reloading.
func (l *Link) Ready(status string) error { return l.say("READY=1", "STATUS="+status) }

// Status says what the daemon does, in a line for people.
func (l *Link) Status(status string) error { return l.say("STATUS=" + status) }

// Well says that the daemon does its work. It must be said again within Watchdog.
func (l *Link) Well(status string) error { return l.say("WATCHDOG=1", "STATUS="+status) }

// Reloading says that the configuration is being read; Ready follows.
func (l *Link) Reloading() error {
	now, err := monotonic()
	if err != nil {
		return err
	}
	return l.say("RELOADING=1", "MONOTONIC_USEC="+strconv.FormatInt(now.Microseconds(), 10), "STATUS=reads the configuration again")
}

// Stopping says that the daemon is about to end.
func (l *Link) Stopping(status string) error { return l.say("STOPPING=1", "STATUS="+status) }

// MoreTime asks for so much time from now on, before systemd ends the daemon by force.
func (l *Link) MoreTime(d time.Duration) error {
	return l.say("EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(d.Microseconds(), 10))
}

func (l *Link) say(lines ...string) error { return l.send(noFile, lines...) }

// noFile stands for no open file.
const noFile = -1

// send says lines, with an open file beside them.
func (l *Link) send(file int, lines ...string) error {
	if l == nil {
		return nil
	}
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], "\n", " ")
	}

	text := strings.Join(lines, "\n")
	if len(text) > maxState {
		text = strings.ToValidUTF8(text[:maxState], "")
	}
	// A daemon must not wait for a manager that does not read.
	if err := l.conn.SetWriteDeadline(time.Now().Add(sayWithin)); err != nil {
		return err
	}
	var err error
	if file == noFile {
		_, err = l.conn.Write([]byte(text))
	} else {
		err = sendFile(l.conn, text, file)
	}
	if err != nil {
		return fmt.Errorf("the service manager could not be told %s: %w", lines[0], err)
	}
	return nil
}

// Keep has systemd keep a socket open while the daemon is started again, under a name of letters, digits and dots.
func (l *Link) Keep(name string, socket syscall.Conn) error {
	if l == nil {
		return nil
	}

	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var said error
	// The descriptor itself is sent: a File of a listener would make it one that blocks.
	err = raw.Control(func(fd uintptr) {
		said = l.send(int(fd), "FDSTORE=1", "FDNAME="+name, "FDPOLL=0")
	})
	return errors.Join(err, said)
}

// Forget has systemd close what it keeps under a name.
func (l *Link) Forget(name string) error { return l.say("FDSTOREREMOVE=1", "FDNAME="+name) }

// Claim hands over the sockets that systemd has kept under names that match, and each only once.
func (l *Link) Claim(match func(name string) bool) []*Kept {
	if l == nil {
		return nil
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	var out, rest []*Kept
	for _, k := range l.kept {
		if match(k.Name) {
			out = append(out, k)
		} else {
			rest = append(rest, k)
		}
	}
	l.kept = rest
	return out
}

// ForgetAll has systemd close what it keeps and nobody has claimed.
func (l *Link) ForgetAll() error {
	var errs []error
	for _, k := range l.Claim(func(string) bool { return true }) {
		errs = append(errs, l.Forget(k.Name), k.File.Close())
	}
	return errors.Join(errs...)
}

// Close ends the link.
func (l *Link) Close() error {
	if l == nil {
		return nil
	}
	return errors.Join(closeAll(l.Claim(func(string) bool { return true })), l.conn.Close())
}
