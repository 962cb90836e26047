//go:build !linux

package bench

import (
	"errors"
	"os"
	"time"
)

// Elsewhere there is no inotify to compare with, and no queue of it to overflow.

func armBare(string, []string) (known, found time.Duration, err error) { return 0, 0, nil }

func walkBare(string) (took time.Duration, files int, err error) { return 0, 0, nil }

func suspend(*os.Process) error { return errors.ErrUnsupported }

func goOn(*os.Process) error { return errors.ErrUnsupported }
