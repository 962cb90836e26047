package install

import (
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of a source.
const (
	maxFiles  = 2000
	maxFile   = 10 << 20 // in bytes
	maxTotal  = 50 << 20 // in bytes
	maxFetch  = 64 << 20 // bytes that Git may receive
	maxLevels = 12       // folders above a file
	maxName   = 255      // bytes of one path element
	// maxRatio is the maximum compression ratio of an archive. Real content does not exceed it.
	maxRatio = 200
)

// entryError returns an error with the reason why an entry is refused.
func entryError(name, format string, args ...any) error {
	return fmt.Errorf("%q in the source is refused: %s; nothing was installed", name, fmt.Sprintf(format, args...))
}

// cleanPath returns the slash-separated path of an entry, relative to the source. It returns an
// error if the path is not portable across operating systems.
func cleanPath(name string) (string, error) {
	switch {
	case !utf8.ValidString(name):
		return "", entryError(name, "its name is not UTF-8")
	case strings.ContainsFunc(name, unicode.IsControl):
		return "", entryError(name, "its name holds control characters")
	case strings.ContainsAny(name, `\:*?"<>|`):
		return "", entryError(name, `its name holds one of \ : * ? " < > |`)
	case path.IsAbs(name):
		return "", entryError(name, "its path is absolute")
	}

	elements := strings.Split(strings.TrimSuffix(name, "/"), "/")
	// Many archives are packed from ".", so that every name begins with ./
	if len(elements) > 0 && elements[0] == "." {
		elements = elements[1:]
	}
	if len(elements) > maxLevels+1 {
		return "", entryError(name, "it lies more than %d folders deep", maxLevels)
	}

	for _, e := range elements {
		switch {
		case e == "" || e == "." || e == "..":
			return "", entryError(name, "its path has the element %q", e)
		case len(e) > maxName:
			return "", entryError(name, "its name is longer than %d bytes", maxName)
		case strings.HasSuffix(e, ".") || strings.HasSuffix(e, " "):
			return "", entryError(name, "its name ends in a dot or a space, which Windows drops")
		case isWindowsDevice(e):
			return "", entryError(name, "%s is the name of a device on Windows", e)
		}
	}

	return strings.Join(elements, "/"), nil
}

// isWindowsDevice reports whether Windows treats the name as a device. It does so with any
// extension.
func isWindowsDevice(name string) bool {
	base, _, _ := strings.Cut(strings.ToUpper(name), ".")
	switch base {
	case "CON", "PRN", "AUX", "NUL":
		return true
	}
	return len(base) == 4 && (strings.HasPrefix(base, "COM") || strings.HasPrefix(base, "LPT")) && base[3] >= '0' && base[3] <= '9'
}
