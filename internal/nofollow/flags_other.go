//go:build !unix

package nofollow

// openFlags has nothing to add: what was opened is compared with what was looked at.
const openFlags = 0
