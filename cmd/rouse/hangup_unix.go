//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// onHangup calls again for each SIGHUP that requests a reload of the configuration. It calls gone
// if the terminal that started the daemon was closed.
func onHangup(again, gone func()) (stop func()) {
	// With nohup the daemon must outlive its terminal.
	tied := !signal.Ignored(syscall.SIGHUP) && hasTerminal()
	// A buffer of one is enough, because signals that arrive together request the same reload.
	signals, over := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		for {
			select {
			case <-over:
				return
			case <-signals:
			}

			// SIGHUP has both meanings. Only a missing terminal tells them apart.
			if tied && !hasTerminal() {
				gone()
				return
			}

			again()
		}
	}()

	return func() { signal.Stop(signals); close(over) }
}

// hasTerminal reports whether the process has a terminal. It is taken away before SIGHUP is sent.
func hasTerminal() bool {
	f, err := os.OpenFile("/dev/tty", os.O_RDONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	f.Close()
	return true
}
