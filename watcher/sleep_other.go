//go:build !linux

package watcher

import "time"

// sleepThread says that the system is not asked to keep a thread asleep here.
func sleepThread(time.Duration) bool { return false }
