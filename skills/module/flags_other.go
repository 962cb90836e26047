//go:build !unix

package module

// openFlags has nothing to add: here are no pipes among files.
const openFlags = 0
