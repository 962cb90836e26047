//go:build !unix

package terminal

// watchSize does nothing: this system has no resize signal. The next Draw reads the size anyway.
func watchSize(func()) (stop func()) { return func() {} }
