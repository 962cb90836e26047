//go:build !windows

package service

// LeaveConsole does nothing: only Windows opens a console window for programs.
func LeaveConsole() {}
