package systemd

import (
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// firstFile is where the files begin that systemd passes on (SD_LISTEN_FDS_START).
	firstFile = 3
	// maxFiles bounds them: a daemon stores two.
	maxFiles = 64
)

// takeFiles are the files that systemd has passed on, which no child inherits from here on.
func takeFiles(count, names string) []*Kept {
	n, err := strconv.Atoi(count)
	if err != nil || n <= 0 || n > maxFiles {
		return nil
	}

	named := strings.Split(names, ":")
	var out []*Kept
	for i := range n {
		name := "unknown"
		if i < len(named) && named[i] != "" {
			name = named[i]
		}

		// Another kind of file is not touched: it may be one that this process has opened itself.
		fd := firstFile + i
		var info unix.Stat_t
		if err := unix.Fstat(fd, &info); err != nil || info.Mode&unix.S_IFMT != unix.S_IFSOCK {
			continue
		}
		unix.CloseOnExec(fd)
		out = append(out, &Kept{Name: name, File: os.NewFile(uintptr(fd), name)})
	}
	return out
}

// sendFile says a text with an open file beside it. The net package does that on sockets alone that are not connected.
func sendFile(conn *net.UnixConn, text string, file int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var said error
	err = raw.Write(func(fd uintptr) bool {
		said = unix.Sendmsg(int(fd), []byte(text), unix.UnixRights(file), nil, 0)
		return !errors.Is(said, unix.EAGAIN)
	})
	return errors.Join(err, said)
}

// monotonic is the clock by which systemd tells a reload from the one before.
func monotonic() (time.Duration, error) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return time.Duration(now.Nano()), err
}
