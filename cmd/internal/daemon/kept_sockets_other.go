//go:build !linux

package daemon

// socketName is "": sockets are not kept here.
func socketName(string) string { return "" }
