//go:build !linux

package main

// failingDisk needs a filter of system calls.
func failingDisk() { main() }
