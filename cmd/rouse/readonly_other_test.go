//go:build !linux

package main

// failingDisk runs rouse without failures, because it would need a seccomp filter.
func failingDisk() { main() }
