//go:build !linux

package backup

// syncsAll reports whether syncAll makes all files durable. If it is false, each file needs its own
// fsync.
const syncsAll = false

func syncAll(string) error { return nil }

// exchange returns false: this system cannot swap two names atomically.
func exchange(string, string) (bool, error) { return false, nil }
