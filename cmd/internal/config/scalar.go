package config

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"rouse/internal/text"
)

// Duration is a Go duration or a number of days: 90s, 1h30m, 7d.
type Duration time.Duration

// Size is a number of bytes: 10MiB.
type Size int64

// Path is a file path. A relative path is relative to the folder of the file that contains it.
type Path string

// Name is the name of a user-defined item. It is also used as a folder name.
type Name string

// Patterns of names.
var (
	NameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)
	// DeviceName matches names that Windows reserves for devices in every folder.
	DeviceName = regexp.MustCompile(`(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9])$`)
)

// ParseDuration parses a duration that is not negative.
func ParseDuration(s string) (time.Duration, error) {
	d, err := text.ParseSpan(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a length of time like 30s, 15m, 6h or 7d", Short(s))
	}
	return d, nil
}

func (d Duration) String() string { return text.FormatSpan(time.Duration(d)) }

// String formats the size exactly, with the largest unit that divides it.
func (s Size) String() string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	i := 0
	for s >= 1024 && s%1024 == 0 {
		s, i = s/1024, i+1
	}
	return fmt.Sprintf("%d%s", s, units[i])
}

// sizePattern matches a number and an optional unit. Units with an i are powers of 1024.
var sizePattern = regexp.MustCompile(`(?i)^([0-9.,]+)\s*(?:([kmgtpe])(i?))?b?\s*$`)

// ParseSize parses a size in bytes.
func ParseSize(text string) (Size, error) {
	if m := sizePattern.FindStringSubmatch(text); m != nil {
		n, err := strconv.ParseFloat(strings.ReplaceAll(m[1], ",", ""), 64)
		base := 1000.0
		if m[3] != "" {
			base = 1024
		}
		n *= math.Pow(base, float64(strings.Index(" kmgtpe", strings.ToLower(m[2]))))
		if err == nil && n < math.MaxInt64 {
			return Size(n), nil
		}
	}
	return 0, fmt.Errorf("%q is not a size like 500KiB or 10MiB", Short(text))
}
