//go:build !unix

package checkout_test

import "errors"

// crash is not supported on systems where a process cannot kill itself.
func crash(string) error { return errors.ErrUnsupported }
