//go:build !unix

package atomicfile

import "os"

// syncDir does nothing: Windows cannot sync a folder, and returns an error for it.
func syncDir(*os.File) error { return nil }
