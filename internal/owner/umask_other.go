//go:build !unix

package owner

// RestrictUmask does nothing, because files have no modes for other users here.
func RestrictUmask() {}
