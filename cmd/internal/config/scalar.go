package config

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Duration is a Go duration, or a number of days: 90s, 1h30m, 7d.
type Duration time.Duration

// Size is a number of bytes: 10MiB.
type Size int64

// Path is a path; a relative one is taken from the folder of the file that holds it.
type Path string

// Name names something that a user made: it becomes a folder.
type Name string

// Text is a string that is not a path.
type Text string

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

// ParseDuration reads a length of time.
func ParseDuration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseFloat(days, 64)
		if err == nil && n >= 0 && n*24*float64(time.Hour) < math.MaxInt64 {
			return time.Duration(n * 24 * float64(time.Hour)), nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a length of time like 30s, 15m, 6h or 7d", text)
	}
	return d, nil
}

func (d Duration) String() string {
	t := time.Duration(d)
	if t != 0 && t%(24*time.Hour) == 0 {
		return fmt.Sprintf("%dd", t/(24*time.Hour))
	}
	text := t.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func (s Size) String() string { return strings.ReplaceAll(humanize.IBytes(uint64(max(s, 0))), " ", "") }

func parseSize(text string) (Size, error) {
	n, err := humanize.ParseBytes(text)
	if err != nil || n > math.MaxInt64 {
		return 0, fmt.Errorf("%q is not a size like 500KiB or 10MiB", text)
	}
	return Size(n), nil
}
