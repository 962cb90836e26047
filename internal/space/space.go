// Package space returns the free space of file systems.
package space

// Left is the free space of a file system for this user.
type Left struct {
	ID     string // identifies the file system
	Bytes  int64
	Inodes int64
	// CountsInodes reports whether the file system has a fixed number of inodes.
	CountsInodes bool
}
