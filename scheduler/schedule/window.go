package schedule

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"
)

// parseWindow reads hours like 02:00-05:00, and the days on which the window opens, as the last field of a cron expression.
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
	s.opens, s.closes = a, b
	return nil
}

// momentIn returns the moment in the window that opens at an instant. Job and date decide it.
func (s *Schedule) momentIn(opens time.Time) time.Time {
	d := s.zone.dateAt(opens.Unix())
	if s.zone.resolve(d.at(s.opens/60, s.opens%60, 0)) > opens.Unix() {
		d-- // the clock was put forward over midnight, and the window of the day before opens behind that
	}
	end := d
	if s.closes <= s.opens { // over midnight
		end++
	}

	// By the clock: a window in which the clock is changed is as much shorter or longer.
	closes := s.zone.resolve(end.at(s.closes/60, s.closes%60, 0))
	length := closes - opens.Unix()
	if length <= 0 { // all of it fell into a gap
		return opens
	}

	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%s", s.job, time.Unix(d.at(0, 0, 0), 0).UTC().Format(time.DateOnly))
	return opens.Add(time.Duration(mixed(h.Sum64())%uint64(length)) * time.Second)
}

// mixed spreads what differs in a few low bits over all of them: dates that follow each other must not give moments that do.
func mixed(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (s *Schedule) windowText() string {
	return fmt.Sprintf("%02d:%02d and %02d:%02d", s.opens/60, s.opens%60, s.closes/60, s.closes%60)
}

// HeldText says in a few words why an occurrence of a source starts so long after its instant.
func HeldText(source string, held time.Duration) string {
	if source == sourceWindow.String() {
		return fmt.Sprintf("its moment in the window, %s after it opens", held)
	}
	return fmt.Sprintf("jitter of %s", held)
}
