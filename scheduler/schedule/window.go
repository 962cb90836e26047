package schedule

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"
)

// window is a part of each day, in minutes since midnight. It may go across midnight.
type window struct{ opens, closes int }

// parseWindow parses hours like 02:00-05:00 and the days on which the window opens. The days have
// the format of the last cron field.
func (s *Schedule) parseWindow(o Options) error {
	from, to, ranged := strings.Cut(o.Window, "-")
	a, errA := parseClock(from)
	b, errB := parseClock(to)
	switch {
	case !ranged || errA != nil || errB != nil || a == 24*60:
		return &Error{"window", o.Window, "is not two times of day like 02:00-05:00"}
	case a == b:
		return &Error{"window", o.Window, "opens and closes at the same time; give it a length, or use schedule"}
	}

	days := o.Days
	if days == "" {
		days = "*"
	}
	var err error
	if s.cron, err = parseCron(fmt.Sprintf("%d %d * * %s", a%60, a/60, days)); err != nil || len(strings.Fields(days)) != 1 {
		return &Error{"window", o.Days, "are not days like 1-5, mon-fri or sat,sun"}
	}
	s.window = window{a, b}
	return nil
}

// momentIn returns the start time in the window that opens at the given instant. It depends on the
// job and the date.
func (w window) momentIn(zone *zone, job string, opens time.Time) time.Time {
	d := zone.dateAt(opens.Unix())
	if zone.resolve(d.at(w.opens/60, w.opens%60, 0)) > opens.Unix() {
		// A clock change at midnight delayed the opening of the previous day's window.
		d--
	}
	end := d
	if w.closes <= w.opens { // across midnight
		end++
	}

	// Use local times, so that a clock change makes the window shorter or longer.
	closes := zone.resolve(end.at(w.closes/60, w.closes%60, 0))
	length := closes - opens.Unix()
	if length <= 0 { // the whole window is in a gap
		return opens
	}

	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%s", job, time.Unix(d.at(0, 0, 0), 0).UTC().Format(time.DateOnly))
	return opens.Add(time.Duration(mixed(h.Sum64())%uint64(length)) * time.Second)
}

// mixed mixes the bits of x, so that consecutive dates do not lead to consecutive times.
func mixed(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (w window) String() string {
	return fmt.Sprintf("%02d:%02d and %02d:%02d", w.opens/60, w.opens%60, w.closes/60, w.closes%60)
}

// HeldText returns the reason why an occurrence starts later than its nominal instant.
func HeldText(source string, held time.Duration) string {
	if source == sourceWindow.String() {
		return fmt.Sprintf("its moment in the window, %s after it opens", held)
	}
	return fmt.Sprintf("jitter of %s", held)
}
