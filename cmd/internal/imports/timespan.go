package imports

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// spanPart is a number with its unit in a length of time as systemd.time(7) has it: 1h 30min, 90, 2.5d.
var spanPart = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµμ]*)\s*`)

// spanUnits are lengths in seconds. A month is 30.44 days and a year 365.25, as systemd has them.
var spanUnits = map[string]float64{
	"": 1, "usec": 1e-6, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "msec": 1e-3, "ms": 1e-3,
	"seconds": 1, "second": 1, "sec": 1, "s": 1, "minutes": 60, "minute": 60, "min": 60, "m": 60,
	"hours": 3600, "hour": 3600, "hr": 3600, "h": 3600, "days": 86400, "day": 86400, "d": 86400,
	"weeks": 604800, "week": 604800, "w": 604800, "months": 2630016, "month": 2630016, "M": 2630016, "years": 31557600, "year": 31557600, "y": 31557600,
}

// parseSpan reads a length of time of systemd.
func parseSpan(text string) (time.Duration, error) {
	rest, seconds := strings.TrimSpace(text), 0.0
	if rest == "" {
		return 0, fmt.Errorf("a length of time is empty")
	}
	for rest != "" {
		m := spanPart.FindStringSubmatch(rest)
		if m == nil {
			return 0, fmt.Errorf("%q is no length of time", shown(text))
		}
		unit, known := spanUnits[m[2]]
		n, err := strconv.ParseFloat(m[1], 64)
		if !known || err != nil {
			return 0, fmt.Errorf("%q is no length of time", shown(text))
		}
		seconds, rest = seconds+n*unit, rest[len(m[0]):]
	}
	if seconds*float64(time.Second) > math.MaxInt64/2 {
		return 0, fmt.Errorf("%q is too long", shown(text))
	}
	return time.Duration(math.Round(seconds * float64(time.Second))), nil
}

// length writes a length of time as the configuration has it.
func length(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// setEvery has a job run again and again. rouse counts whole seconds, and one at least.
func (j *Job) setEvery(d time.Duration) {
	whole := max(d.Round(time.Second), time.Second)
	if whole != d {
		j.remark("every %s is every %s here", d, whole)
	}
	j.set("every", length(whole))
}

// wall bounds the time of a run; what it writes nothing for is bounded as in the defaults.
func wall(d time.Duration) raw {
	return raw("{wall: " + length(max(d.Round(time.Second), time.Second)) + ", idle: 2h}")
}
