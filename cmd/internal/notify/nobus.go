//go:build !(linux || freebsd || netbsd || openbsd)

package notify

import "context"

// look takes the desktop for granted where the system has one for everybody.
func (d desktop) probe(context.Context) (markup bool, err error) { return false, nil }
