package schedule

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"math/bits"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // zones must be known on a machine without a zone database
	"unicode"

	"rouse/internal/text"
)

// Options say what a user wrote; exactly one of Cron, Every, At and Window is set.
type Options struct {
	Cron   string // five or six fields, or @hourly…@yearly; CRON_TZ=Zone may precede
	Every  string // a Go duration or Nd, at least a second
	At     string // RFC 3339
	Window string // 02:00-05:00: once in each, at a moment that Job and the date decide
	Days   string // of Window, like 1-5 or mon,thu; "" means all

	Timezone string         // IANA name; "" means Location
	Location *time.Location // nil means UTC
	// Follows reports that Location is the machine's zone. A change of the zone does not change the hash.
	Follows  bool
	Exclude  []string                    // 2026-12-25, or 2026-12-24..2026-12-31: local dates; or names of calendars
	Only     []string                    // the same: nothing is due outside of them
	Calendar func(name string) *Calendar // nil for a name that there is not
	Jitter   time.Duration
	Job      string    // spreads jitter, and moments in windows
	Anchor   time.Time // origin of the Every grid; zero means the Unix epoch
}

// Error is a schedule that cannot be used.
type Error struct {
	Field  string // which option, or which field of a cron expression
	Value  string
	Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("%s %q: %s", e.Field, e.Value, e.Reason) }

// Schedule is the set of instants that a user meant.
type Schedule struct {
	zone   *zone
	hash   string
	cron   fields
	source source

	every         time.Duration
	anchor        time.Time // origin of the grid of every; zero means the Unix epoch
	at            time.Time
	jitter        time.Duration
	opens, closes int // of a window, in minutes from midnight
	job           string
	filter        filter
}

type source uint8

const (
	sourceCron source = iota
	sourceEvery
	sourceAt
	sourceWindow
)

func (s source) String() string { return [...]string{"cron", "every", "at", "window"}[s] }

// Parse reads a schedule. What can never fire is an error.
func Parse(o Options) (*Schedule, error) {
	location := o.Location
	if o.Timezone != "" {
		var err error
		if location, err = loadZone("timezone", o.Timezone); err != nil {
			return nil, err
		}
	}
	s := &Schedule{zone: zoneOf(cmp.Or(location, time.UTC)), anchor: o.Anchor, jitter: o.Jitter, job: o.Job}
	if len(slices.DeleteFunc([]string{o.Cron, o.Every, o.At, o.Window}, func(v string) bool { return v == "" })) != 1 {
		return nil, &Error{"schedule", o.Cron + o.Every + o.At + o.Window, "give exactly one of schedule, every, at and window"}
	}
	if o.Jitter < 0 {
		return nil, &Error{"jitter", o.Jitter.String(), "must not be negative"}
	}
	if o.Jitter > 0 && o.Window != "" {
		return nil, &Error{"jitter", o.Jitter.String(), "is for schedule, every and at; a window spreads by itself"}
	}

	if err := s.filter.parse(o); err != nil {
		return nil, err
	}
	if err := s.parseSource(o); err != nil {
		return nil, err
	}
	if err := s.checkFilter(o); err != nil {
		return nil, err
	}

	zone := s.zone.String()
	if o.Follows {
		zone = "Local" // otherwise a change of zone would lose the job's progress
	}
	meant := fmt.Appendf(nil, "%q %q %q %q %q", o.Cron, o.Every, o.At, zone, o.Exclude)
	if o.Window != "" || len(o.Only) > 0 { // else the hash is what it was before there were these
		meant = fmt.Appendf(meant, " %q %q %q", o.Window, o.Days, o.Only)
	}
	// What calendars hold is not in it: they change, and what is due goes on from where it was.
	sum := sha256.Sum256(meant)
	s.hash = hex.EncodeToString(sum[:8]) // enough to notice a change of one job's schedule
	return s, nil
}

// checkFilter refuses dates that leave nothing. What calendars leave is as long as they stay as they are.
func (s *Schedule) checkFilter(o Options) error {
	if s.filter.empty() || !s.filter.fixed() || !s.Next(s.searchStart()).IsZero() {
		return nil
	}
	if len(o.Only) > 0 {
		return &Error{"only", strings.Join(o.Only, ", "), "leaves no instant of the schedule, so it never fires"}
	}
	return &Error{"exclude", strings.Join(o.Exclude, ", "), "leaves no instant of the schedule, so it never fires"}
}

func (s *Schedule) parseSource(o Options) error {
	var err error
	switch {
	case o.Cron != "":
		s.source = sourceCron
		expression, location, err := cutZone(o.Cron)
		if err != nil {
			return err
		}

		if location != nil {
			s.zone = zoneOf(location)
		}
		if s.cron, err = parseCron(expression); err != nil {
			return err
		}
		if s.next(s.searchStart()).IsZero() {
			return &Error{"schedule", o.Cron, "never fires: no date matches day-of-month and month"}
		}
	case o.Window != "":
		s.source = sourceWindow
		return s.parseWindow(o)
	case o.Every != "":
		s.source = sourceEvery
		if s.every, err = parseEvery(o.Every); err != nil {
			return err
		}
	default:
		s.source = sourceAt
		if s.at, err = time.Parse(time.RFC3339, o.At); err != nil {
			return &Error{"at", o.At, "is not an RFC 3339 instant like 2026-11-21T08:00:00+01:00"}
		}
		if s.at = s.at.UTC(); s.at.Unix() >= end {
			return &Error{"at", o.At, "is after the year 9999"}
		}
	}

	return nil
}

// searchStart returns a time before the first instant. 2000 starts a Gregorian cycle of 400 years.
func (s *Schedule) searchStart() time.Time {
	if s.source == sourceAt {
		return s.at.Add(-1)
	}
	return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
}

// cutZone takes CRON_TZ= or TZ= off an expression. robfig panics on malformed ones.
func cutZone(text string) (string, *time.Location, error) {
	text = strings.TrimSpace(text)
	for _, prefix := range []string{"CRON_TZ=", "TZ="} {
		rest, ok := strings.CutPrefix(text, prefix)
		if !ok {
			continue
		}

		end := strings.IndexFunc(rest, unicode.IsSpace)
		if end <= 0 {
			return "", nil, &Error{"schedule", text, prefix + " needs a time zone, a space, and a cron expression"}
		}

		zone, err := loadZone(prefix, rest[:end])
		return strings.TrimSpace(rest[end:]), zone, err
	}

	return text, nil, nil
}

const maxEvery = 10 * 366 * 24 * time.Hour

func parseEvery(given string) (time.Duration, error) {
	d, err := text.ParseSpan(given)
	if err != nil {
		return 0, &Error{"every", given, "is not a length of time like 30s, 15m, 6h or 7d"}
	}

	switch {
	case d < time.Second:
		return 0, &Error{"every", given, "must be at least 1s"}
	case d%time.Second != 0:
		return 0, &Error{"every", given, "must be whole seconds"}
	case d > maxEvery:
		return 0, &Error{"every", given, "must be at most ten years"}
	}

	return d, nil
}

// WithAnchor returns the schedule with another origin of its grid, itself if it has none.
func (s *Schedule) WithAnchor(t time.Time) *Schedule {
	if s.source != sourceEvery {
		return s
	}
	c := *s
	c.anchor = t
	return &c
}

// MoreThanHourly reports whether some of its instants lie less than an hour apart, whatever is left out of them.
func (s *Schedule) MoreThanHourly() bool {
	switch s.source {
	case sourceEvery:
		return s.every < time.Hour
	case sourceCron:
		return bits.OnesCount64(s.cron.minute) > 1 || bits.OnesCount64(s.cron.second) > 1
	}
	return false
}

// DailyAtMost reports whether the schedule fires at most once a day.
func (s *Schedule) DailyAtMost() bool {
	switch s.source {
	case sourceEvery:
		return s.every >= 24*time.Hour
	case sourceCron:
		return !s.MoreThanHourly() && bits.OnesCount64(uint64(s.cron.hour)) == 1
	}
	return true
}

// Source is cron, every, at or window.
func (s *Schedule) Source() string { return s.source.String() }

// Hash changes when the instants that are meant change.
func (s *Schedule) Hash() string { return s.hash }

// Actual is when an occurrence starts: its nominal instant plus the jitter, which is the same
// each time it is asked for, and never reaches the next nominal instant; or its moment in a window, which opens then.
func (s *Schedule) Actual(nominal time.Time) time.Time {
	if s.source == sourceWindow {
		return s.momentIn(nominal)
	}
	if s.jitter <= 0 {
		return nominal
	}

	room := s.jitter
	if next := s.Next(nominal); !next.IsZero() {
		room = min(room, next.Sub(nominal))
	}

	// A hash instead of a random number: after a restart the same instant starts at the same time.
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%d", s.job, nominal.UnixMilli())
	actual := nominal.Add(time.Duration(h.Sum64() % uint64(max(room, 1)))).Truncate(time.Millisecond)
	if actual.Before(nominal) { // an anchor can lie within a millisecond
		return nominal
	}

	return actual
}
