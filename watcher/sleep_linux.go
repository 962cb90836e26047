package watcher

import (
	"time"

	"golang.org/x/sys/unix"
)

// waitsInSystem says whether waitInSystem waits here.
const waitsInSystem = true

// timerSlack is how much later than asked for the system usually wakes a thread: its default slack, and the way to the processor.
const timerSlack = 60 * time.Microsecond

// waitInSystem keeps the thread asleep for a time, or a little less or more.
func waitInSystem(d time.Duration) {
	t := unix.NsecToTimespec(max(d-timerSlack, time.Microsecond).Nanoseconds())
	_ = unix.Nanosleep(&t, nil) // whoever waits looks at the clock
}
