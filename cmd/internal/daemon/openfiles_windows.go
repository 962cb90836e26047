package daemon

// maxOpenFiles returns false, because Windows has no such limit for a process.
func maxOpenFiles() (limit uint64, known bool) { return 0, false }
