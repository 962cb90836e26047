//go:build !linux || !(amd64 || arm64)

package powercut

import "errors"

// ErrNotAllowed: this system lets nobody follow the calls of a program.
var ErrNotAllowed = errors.New("the calls of a program can be followed on Linux alone")

// Record is there on Linux.
func Record(Options) (*Trace, error) { return nil, ErrNotAllowed }
