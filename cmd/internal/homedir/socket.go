package homedir

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// maxSocketPath is the size of sockaddr_un with the final zero: 104 on macOS, 108 on Linux.
const maxSocketPath = 104

// SocketPath returns the socket path of a home. If the path would be too long, the socket is in a
// runtime folder.
func SocketPath(dir string) string {
	path := filepath.Join(dir, "rouse.sock")
	if len(path) < maxSocketPath {
		return path
	}

	// The short name depends only on the path of the home, so every command finds it.
	sum := sha256.Sum256([]byte(dir))
	base := os.Getenv("XDG_RUNTIME_DIR")
	// Users share the temporary folder, so each user gets a folder in it.
	if base == "" || len(base) > maxSocketPath/2 {
		base = filepath.Join(os.TempDir(), fmt.Sprintf("rouse-%d", os.Getuid()))
	} else {
		base = filepath.Join(base, "rouse")
	}

	return filepath.Join(base, hex.EncodeToString(sum[:8])+".sock")
}
