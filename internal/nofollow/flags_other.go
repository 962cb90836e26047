//go:build !unix

package nofollow

// openFlags is empty. Open compares the opened file with the file that it found before.
const openFlags = 0
