//go:build !unix

package main

// onHangup: there is no such signal here.
func onHangup(_, _ func()) (stop func()) { return func() {} }
