package preview

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// limit sets a kernel limit of memory. A wrong length in a file can cause one huge allocation that
// is filled with zeros. watch could not stop it in time.
func limit() error {
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_DATA, &now); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	if now.Cur <= 2*maxMemory {
		return nil // already set by the sandbox and cannot be changed
	}

	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}

	var size, resident, shared, program, library, data uint64 // pages
	if _, err := fmt.Sscan(string(text), &size, &resident, &shared, &program, &library, &data); err != nil {
		return fmt.Errorf("/proc/self/statm: %w", err)
	}

	most := data*uint64(os.Getpagesize()) + 2*maxMemory
	return os.NewSyscallError("setrlimit", unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: most, Max: most}))
}
