//go:build !unix

package module

// openFlags is zero, because directories contain no pipes on this system.
const openFlags = 0
