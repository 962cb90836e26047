//go:build !linux

package daemon

// releaseProgramPages does nothing: elsewhere the system takes back by itself what is not used.
func releaseProgramPages() error { return nil }
