package schedule

import (
	"strings"
	"time"
)

// date is a local date, in days since 1970-01-01.
type date int64

// dateOf returns the local date of a time.
func dateOf(local time.Time) date {
	_, offset := local.Zone()
	return date(floorDiv(local.Unix()+int64(offset), daySeconds))
}

// at returns a local time on the date, stored as UTC seconds.
func (d date) at(hour, minute, second int) int64 {
	return int64(d)*daySeconds + int64(hour*3600+minute*60+second)
}

func (d date) add(days int) date { return d + date(days) }

func (d date) weekday() int {
	n := (d + 4) % 7 // 1970-01-01 was a Thursday
	return int((n + 7) % 7)
}

// dateRange is an inclusive range of local dates. text is the user's input.
type dateRange struct {
	from, to date
	text     string
}

func parseDates(field, text string) (dateRange, error) {
	from, to, ranged := strings.Cut(text, "..")
	if !ranged {
		to = from
	}

	a, errA := time.Parse(time.DateOnly, strings.TrimSpace(from))
	b, errB := time.Parse(time.DateOnly, strings.TrimSpace(to))
	if errA != nil || errB != nil {
		return dateRange{}, &Error{field, text, "is neither a date like 2026-12-25 nor a range like 2026-12-24..2026-12-31"}
	}
	if b.Before(a) {
		return dateRange{}, &Error{field, text, "the range runs backwards"}
	}

	return dateRange{dateOf(a), dateOf(b), text}, nil
}

// resolve returns the instant of a local time. See zone.resolve.
func resolve(d date, hour, minute, second int, zone *time.Location) time.Time {
	return time.Unix(zoneOf(zone).resolve(d.at(hour, minute, second)), 0).UTC()
}

// exists reports whether the zone has the local date. For example, Apia skipped 2011-12-30.
func (d date) exists(zone *time.Location) bool { return zoneOf(zone).hasDate(d) }

// NextDay returns the start of the local day after the day of t.
func NextDay(t time.Time, zone *time.Location) time.Time {
	return resolve(dateOf(t.In(zone)).add(1), 0, 0, 0, zone).UTC()
}
