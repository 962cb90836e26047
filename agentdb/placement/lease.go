package placement

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"rouse/internal/atomicfile"
)

// leaseNote is a file with the lease under which this node has an agent's database.
type leaseNote struct {
	path string
	// owner identifies the ledger and the agent and is the start of the file. It makes a note of
	// another agent invalid, even if the file system ignores the case of names.
	owner string
}

// exists reports whether this node ever had the database under a lease.
func (n leaseNote) exists() bool {
	text, err := os.ReadFile(n.path)
	return err == nil && strings.HasPrefix(string(text), n.owner)
}

// holds reports whether this node has the database file under the lease and can continue with it.
func (n leaseNote) holds(lease int64) bool {
	text, err := os.ReadFile(n.path)
	return err == nil && string(text) == n.text(lease)
}

func (n leaseNote) write(lease int64) error {
	if err := os.MkdirAll(filepath.Dir(n.path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(n.path, []byte(n.text(lease)), 0o600)
}

func (n leaseNote) text(lease int64) string {
	return n.owner + strconv.FormatInt(lease, 10) + "\n"
}
