//go:build !unix

package terminal

// watchSize is nothing where no signal tells of it: the next drawing asks for the size anyway.
func watchSize(func()) (stop func()) { return func() {} }
