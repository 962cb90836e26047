package api

import (
	"strconv"
	"time"
)

// KindLimit is the Kind of an Error of a request that comes when too much waits, or was asked for, already (OSA-26).
const KindLimit = "task_limit_reached"

// RetryAfter is a duration as the header Retry-After has it: whole seconds, and one at least.
func RetryAfter(d time.Duration) string {
	return strconv.FormatInt(max(1, int64((d+time.Second-1)/time.Second)), 10)
}
