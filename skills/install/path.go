package install

import (
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

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

// cleanPath is the path of an entry below the skill, with slashes; an error unless it means the same
// on every operating system.
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
	// Many archives are packed from ".", and have ./ before every name.
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

// isWindowsDevice says whether the name means a device on Windows, which it does with any extension.
func isWindowsDevice(name string) bool {
	base, _, _ := strings.Cut(strings.ToUpper(name), ".")
	switch base {
	case "CON", "PRN", "AUX", "NUL":
		return true
	}
	return len(base) == 4 && (strings.HasPrefix(base, "COM") || strings.HasPrefix(base, "LPT")) && base[3] >= '0' && base[3] <= '9'
}
