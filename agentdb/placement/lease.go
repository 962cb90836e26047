package placement

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"rouse/internal/atomicfile"
)

// leaseNote is a file in which a node notes the lease under which it has an agent's database.
type leaseNote struct {
	path string
	// owner names the ledger and the agent, and begins the text of the file. Leases of others do not
	// count, even if the file system ignores the case of names.
	owner string
}

// exists reports whether this node ever had the database under a lease.
func (n leaseNote) exists() bool {
	text, err := os.ReadFile(n.path)
	return err == nil && strings.HasPrefix(string(text), n.owner)
}

// holds reports whether the database file is the one that this node had under the lease, so that it
// can be used further.
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
