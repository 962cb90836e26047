//go:build !linux

package watcher

import "time"

// waitsInSystem says whether waitInSystem waits here.
const waitsInSystem = false

func waitInSystem(time.Duration) {}
