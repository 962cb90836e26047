//go:build !windows

package service

// LeaveConsole does nothing: only Windows gives programs a window.
func LeaveConsole() {}
