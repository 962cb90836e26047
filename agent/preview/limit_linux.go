package preview

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// limit has the kernel refuse memory: a length that is a lie is asked for, and filled with zeros,
// in one go, which nothing within the process could end.
func limit() error {
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_DATA, &now); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	if now.Cur <= 2*maxMemory {
		return nil // the sandbox has set it, and lets nobody change it
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
