package watcher

import (
	"time"

	"golang.org/x/sys/unix"
)

// timerSlack is how much later than asked for the system usually wakes a thread: its default slack, and the way to the processor.
const timerSlack = 60 * time.Microsecond

// sleepThread keeps the thread asleep for a time, a little less or more, and says whether the system can do that.
func sleepThread(d time.Duration) bool {
	t := unix.NsecToTimespec(max(d-timerSlack, time.Microsecond).Nanoseconds())
	err := unix.Nanosleep(&t, nil)
	return err == nil || err == unix.EINTR
}
