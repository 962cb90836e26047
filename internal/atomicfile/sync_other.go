//go:build !unix

package atomicfile

import "os"

// syncDir has nothing to do: Windows has no such call for a folder, and refuses to be asked.
func syncDir(*os.File) error { return nil }
