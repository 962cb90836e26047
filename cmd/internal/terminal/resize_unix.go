//go:build unix

package terminal

import (
	"os"
	"os/signal"
	"syscall"
)

// watchSize calls changed each time the terminal is resized, until stop is called.
func watchSize(changed func()) (stop func()) {
	signals, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGWINCH)
	go func() {
		for {
			select {
			case <-signals:
				changed()
			case <-done:
				return
			}
		}
	}()

	return func() {
		signal.Stop(signals)
		close(done)
	}
}
