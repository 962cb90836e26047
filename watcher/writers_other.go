//go:build !linux

package watcher

import "time"

// writers are not told by every system.
type writers struct{}

func (*writers) of(string, time.Time) string { return "" }
