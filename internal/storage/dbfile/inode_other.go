//go:build !unix

package dbfile

// inode returns 0 (unknown). An open file cannot be replaced on these systems.
func inode(string) uint64 { return 0 }
