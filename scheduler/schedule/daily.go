package schedule

import (
	"fmt"
	"strings"
	"time"
)

// Daily is a time of each local day, in minutes from midnight.
type Daily int

// ParseDaily reads daily at 08:00. An error is a *Error.
func ParseDaily(text string) (Daily, error) {
	words := strings.Fields(strings.ToLower(text))
	if len(words) != 3 || words[0] != "daily" || words[1] != "at" {
		return 0, &Error{"digest", text, "is not like daily at 08:00"}
	}

	minutes, err := parseClock(words[2])
	if err != nil || minutes == 24*60 {
		return 0, &Error{"digest", text, "is not like daily at 08:00"}
	}
	return Daily(minutes), nil
}

// Next is the first such time after an instant: once on each day, at the first of two equal clock readings, and after the
// gap on a day whose clocks skip it.
func (d Daily) Next(after time.Time, zone *time.Location) time.Time {
	// As in NextTimeOfDay, but for a reading that repeats.
	day := dateOf(after.In(zone)).add(-1)
	for range 4 {
		if t := resolve(day, int(d)/60, int(d)%60, 0, zone); day.exists(zone) && t.After(after) {
			return t.UTC()
		}
		day = day.add(1)
	}
	return after.Add(24 * time.Hour) // no zone is so strange
}

// String is the text that ParseDaily reads.
func (d Daily) String() string { return fmt.Sprintf("daily at %02d:%02d", int(d)/60, int(d)%60) }
