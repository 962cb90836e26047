//go:build !linux

package bench

import "errors"

// forget is not possible elsewhere: what is asked for is not measured.
func forget(string) error { return errors.ErrUnsupported }
