package main

import (
	"os"
	"runtime"
	"runtime/debug"
)

// firstCollection is how much garbage may lie about before it is first collected, of what is usual, in percent: 8 MiB in place of 4. Most commands
// need a little more than those 4, and have ended before 8.
const firstCollection = 200

// collectLater has the first collection of garbage wait, which costs a short command a fifth of its processor time. From then on all is as
// usual: a daemon needs no more memory. Whoever has set $GOGC wants what it says.
func collectLater() {
	if os.Getenv("GOGC") != "" {
		return
	}

	usual := debug.SetGCPercent(firstCollection)
	// Nobody holds it, so the first collection finds it.
	unheld := &struct{ self *int }{new(int)}
	runtime.AddCleanup(unheld, func(percent int) { debug.SetGCPercent(percent) }, usual)
}
