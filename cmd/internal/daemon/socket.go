package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"rouse/internal/owner"
)

// maxSocketPath is what every supported system accepts in sockaddr_un, including the final zero
// (104 on macOS, 108 on Linux).
const maxSocketPath = 104

// SocketPath is where the daemon of a home listens: in the home, or in a short
// runtime folder when that path would not fit a socket address.
func SocketPath(dir string) string {
	path := filepath.Join(dir, "rouse.sock")
	if len(path) < maxSocketPath {
		return path
	}

	// The short name comes from the home alone, so that a command finds it without asking anybody.
	sum := sha256.Sum256([]byte(dir))
	base := os.Getenv("XDG_RUNTIME_DIR")
	// The temp folder is shared between users, so each gets a folder of their own in it.
	if base == "" || len(base) > maxSocketPath/2 {
		base = filepath.Join(os.TempDir(), fmt.Sprintf("rouse-%d", os.Getuid()))
	} else {
		base = filepath.Join(base, "rouse")
	}

	return filepath.Join(base, hex.EncodeToString(sum[:8])+".sock")
}

// listen opens the socket for its owner alone. It replaces the socket of an ended process: this process holds the lock of the home, so
// no other process serves it. The socket file outlives this process if stays is set, see Connect.
func listen(path, home string, stays bool, log *slog.Logger) (net.Listener, error) {
	// The home was checked when it was opened; beside it is a place where others can make names.
	if folder := filepath.Dir(path); folder != home {
		if err := owner.Private(folder); err != nil {
			return nil, fmt.Errorf("the folder of the socket cannot be used: %w; mend its mode with rouse doctor --fix, or set XDG_RUNTIME_DIR to a folder of yours, or take a shorter path for --home", err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot replace the old socket: %w", err)
	}

	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on the socket %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}

	if unix, ok := l.(*net.UnixListener); ok && stays {
		unix.SetUnlinkOnClose(false)
	}
	return owner.Listener{Listener: l, Refused: func(err error) { log.Warn("somebody was hung up on at the socket", "socket", path, "error", err) }}, nil
}
