package service

import "golang.org/x/sys/windows"

// LeaveConsole closes the window that a program of Windows is given where it is started without one, as by a task: it would
// stand on the desktop for as long as the daemon runs, and end it when it is closed.
func LeaveConsole() {
	_, _, _ = windows.NewLazySystemDLL("kernel32.dll").NewProc("FreeConsole").Call() // fails where there is none
}
