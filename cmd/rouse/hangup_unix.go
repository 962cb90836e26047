//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// onHangup calls again for each SIGHUP that asks for the configuration to be read, and gone
// when the terminal is closed in which the daemon was started.
func onHangup(again, gone func()) (stop func()) {
	// With nohup the daemon is to outlive its terminal.
	tied := !signal.Ignored(syscall.SIGHUP) && hasTerminal()
	// One place in the channel: several signals before the first is handled ask for the same.
	signals, over := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		for {
			select {
			case <-over:
				return
			case <-signals:
			}

			// The same signal means both things; only a terminal that is gone tells them apart.
			if tied && !hasTerminal() {
				gone()
				return
			}

			again()
		}
	}()

	return func() { signal.Stop(signals); close(over) }
}

// hasTerminal says whether the process has a terminal that could hang up; the system takes
// it away before it sends the signal.
func hasTerminal() bool {
	f, err := os.OpenFile("/dev/tty", os.O_RDONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	f.Close()
	return true
}
