//go:build !unix

package atomicfile

import "os"

// forced has nothing to do: Windows has no such call for a folder, and refuses to be asked.
func forced(*os.File) error { return nil }
