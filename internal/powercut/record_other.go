//go:build !linux || !(amd64 || arm64)

package powercut

import "errors"

// ErrNotAllowed is returned by Record, because tracing is only supported on Linux.
var ErrNotAllowed = errors.New("the calls of a program can be followed on Linux alone")

// Record returns ErrNotAllowed.
func Record(Options) (*Trace, error) { return nil, ErrNotAllowed }
