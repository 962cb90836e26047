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

// Duration is a Go duration, or a number of days: 90s, 1h30m, 7d.
type Duration time.Duration

// Size is a number of bytes: 10MiB.
type Size int64

// Path is a path; a relative one is taken from the folder of the file that holds it.
type Path string

// Name names something that a user made: it becomes a folder.
type Name string

var (
	NameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)
	// DeviceName is what Windows keeps for devices, in any folder.
	DeviceName = regexp.MustCompile(`(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9])$`)
)

// ParseDuration reads a length of time.
func ParseDuration(s string) (time.Duration, error) {
	d, err := text.ParseSpan(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a length of time like 30s, 15m, 6h or 7d", Short(s))
	}
	return d, nil
}

func (d Duration) String() string { return text.FormatSpan(time.Duration(d)) }

// String is exact: a size that no unit divides is a number of bytes.
func (s Size) String() string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	i := 0
	for s >= 1024 && s%1024 == 0 {
		s, i = s/1024, i+1
	}
	return fmt.Sprintf("%d%s", s, units[i])
}

// sizePattern matches a size: a number, and a unit with or without its B. The units with an i are powers of 1024.
var sizePattern = regexp.MustCompile(`(?i)^([0-9.,]+)\s*(?:([kmgtpe])(i?))?b?\s*$`)

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
