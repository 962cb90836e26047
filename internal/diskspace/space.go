// Package diskspace returns the free space of file systems.
package diskspace

// Space is the free space of a file system for this user.
type Space struct {
	ID     string // identifies the file system
	Bytes  int64
	Inodes int64
	// CountsInodes reports whether the file system has a fixed number of inodes.
	CountsInodes bool
}
