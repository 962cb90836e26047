package install

import "fmt"

// Limits of a skill.
const (
	maxFiles  = 2000
	maxFile   = 10 << 20 // bytes
	maxTotal  = 50 << 20 // bytes
	maxFetch  = 64 << 20 // bytes that git may receive for it
	maxLevels = 12       // folders above a file
	maxName   = 255      // bytes of one element of a path
	// maxRatio bounds how many bytes one byte of an archive may unpack to: real content does not
	// compress better.
	maxRatio = 200
)

// entryError says why an entry is refused.
func entryError(name, format string, args ...any) error {
	return fmt.Errorf("%q in the source is refused: %s; nothing was installed", name, fmt.Sprintf(format, args...))
}
