//go:build !linux

package preview

// limit does nothing here: what is too much is seen by watch, a little later.
func limit() error { return nil }
