// Package space asks what a file system has left.
package space

// Left is what a file system has left for this user.
type Left struct {
	ID           string // of the file system: two folders with the same one share it
	Bytes        int64
	Inodes       int64
	CountsInodes bool // some have as many as there is space for
}
