//go:build !unix

package main

// onHangup does nothing, because this system has no SIGHUP.
func onHangup(_, _ func()) (stop func()) { return func() {} }
