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
	// Embed the time zone database, because the system may not have one.
	_ "time/tzdata"
	"unicode"

	"rouse/internal/text"
)

// Options are the user's settings of a schedule. Exactly one of Cron, Every, At and Window must be
// set.
type Options struct {
	// Cron has five or six fields, or is a descriptor or a phrase. It may begin with CRON_TZ=Zone.
	Cron  string
	Every string // a Go duration or Nd, at least a second
	At    string // RFC 3339
	// Window is a daily time window like 02:00-05:00. The schedule fires once in each window, at a
	// time that depends on Job and the date.
	Window string
	Days   string // days of Window, like 1-5 or mon,thu; the default is all

	Timezone string         // IANA name; the default is Location
	Location *time.Location // nil means UTC
	// Follows means that Location is the system's zone. A change of the zone then does not change
	// the hash.
	Follows bool
	// Exclude lists local dates (2026-12-25), ranges (2026-12-24..2026-12-31) and calendar names.
	Exclude []string
	// Only limits the schedule to the listed times. It has the format of Exclude.
	Only     []string
	Calendar func(name string) *Calendar // returns nil if there is no such calendar
	Jitter   time.Duration
	Job      string    // seed of jitter and window times
	Anchor   time.Time // origin of the Every grid; zero means the Unix epoch
}

// Error is an error in a schedule.
type Error struct {
	Field  string // option or field of a cron expression
	Value  string
	Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("%s %q: %s", e.Field, e.Value, e.Reason) }

// Schedule is a parsed schedule.
type Schedule struct {
	zone   *zone
	hash   string
	cron   fields
	source source

	every  time.Duration
	anchor time.Time // origin of the grid of every; zero means the Unix epoch
	at     time.Time
	jitter time.Duration
	window window
	job    string
	filter filter
}

type source uint8

const (
	sourceCron source = iota
	sourceEvery
	sourceAt
	sourceWindow
)

func (s source) String() string { return [...]string{"cron", "every", "at", "window"}[s] }

// Parse parses a schedule. It returns an error if the schedule can never fire.
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
		zone = "Local" // a zone change must not reset the job's progress
	}
	meant := fmt.Appendf(nil, "%q %q %q %q %q", o.Cron, o.Every, o.At, zone, o.Exclude)
	if o.Window != "" || len(o.Only) > 0 { // keep the hash of schedules without these options
		meant = fmt.Appendf(meant, " %q %q %q", o.Window, o.Days, o.Only)
	}
	// The hash excludes calendar contents, because a change of a calendar must not reset the job's
	// progress.
	sum := sha256.Sum256(meant)
	s.hash = hex.EncodeToString(sum[:8]) // enough to detect a change of one job's schedule
	return s, nil
}

// checkFilter returns an error if fixed dates exclude every instant. Calendars are not checked,
// because they can change.
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

// searchStart returns a time before the first instant. The year 2000 starts a Gregorian cycle of
// 400 years.
func (s *Schedule) searchStart() time.Time {
	if s.source == sourceAt {
		return s.at.Add(-1)
	}
	return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
}

// cutZone removes CRON_TZ= or TZ= from an expression. robfig/cron panics if the value is malformed.
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

// WithAnchor returns a copy of the schedule with another grid origin. It returns s if there is no
// grid.
func (s *Schedule) WithAnchor(t time.Time) *Schedule {
	if s.source != sourceEvery {
		return s
	}
	c := *s
	c.anchor = t
	return &c
}

// MoreThanHourly reports whether some instants are less than an hour apart, ignoring exclusions.
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

// Source returns cron, every, at or window.
func (s *Schedule) Source() string { return s.source.String() }

// Hash returns a hash that changes if the instants of the schedule change.
func (s *Schedule) Hash() string { return s.hash }

// Actual returns the start time of an occurrence. It is the nominal instant plus the jitter, or the
// chosen time in a window that opens at nominal. The jitter is deterministic and never reaches the
// next nominal instant.
func (s *Schedule) Actual(nominal time.Time) time.Time {
	if s.source == sourceWindow {
		return s.window.momentIn(s.zone, s.job, nominal)
	}
	if s.jitter <= 0 {
		return nominal
	}

	room := s.jitter
	if next := s.Next(nominal); !next.IsZero() {
		room = min(room, next.Sub(nominal))
	}

	// Use a hash instead of a random number, so that the start time is the same after a restart.
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%d", s.job, nominal.UnixMilli())
	actual := nominal.Add(time.Duration(h.Sum64() % uint64(max(room, 1)))).Truncate(time.Millisecond)
	if actual.Before(nominal) { // the anchor may have a fraction of a millisecond
		return nominal
	}

	return actual
}
