package service

import "golang.org/x/sys/windows"

// LeaveConsole closes the console window that Windows opens for a program started by a task. The
// window would stay on the desktop, and closing it would end the daemon.
func LeaveConsole() {
	_, _, _ = windows.NewLazySystemDLL("kernel32.dll").NewProc("FreeConsole").Call() // fails if there is no console
}
