package calendar

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	ics "github.com/arran4/golang-ical"
	"github.com/teambition/rrule-go"

	"rouse/internal/text"
	"rouse/scheduler/schedule"
)

const (
	// MaxBytes is the maximum size of a calendar file.
	MaxBytes = 4 << 20
	// maxEntries is the maximum number of entries of a calendar, including repetitions.
	maxEntries = 50_000
	// maxName is the maximum length of an entry's title in characters.
	maxName = 80

	// Repetitions are expanded for this number of years before and after now.
	past, future = 2, 10
)

// Parse parses an iCalendar file and expands repetitions around now. It omits cancelled events. It
// returns an error if the file, or any event in it, is invalid.
func Parse(file []byte, now time.Time) ([]schedule.Entry, error) {
	if len(file) > MaxBytes {
		return nil, fmt.Errorf("it has more than %s", text.Size(MaxBytes))
	}
	if !bytes.HasPrefix(bytes.TrimPrefix(bytes.TrimSpace(file), []byte("\ufeff")), []byte("BEGIN:VCALENDAR")) {
		return nil, errors.New("it is no iCalendar file, which begins with BEGIN:VCALENDAR")
	}
	if !bytes.HasSuffix(bytes.TrimSpace(file), []byte("END:VCALENDAR")) {
		return nil, errors.New("it is cut off: END:VCALENDAR is missing")
	}

	parsed, err := ics.ParseCalendarWithOptions(bytes.NewReader(bytes.TrimPrefix(bytes.TrimSpace(file), []byte("\ufeff"))), ics.WithUnknownPropertyHandler(ics.AcceptUnknownPropertyHandler))
	if err != nil {
		return nil, fmt.Errorf("it is not understood: %w", err)
	}

	r := reader{zones: zonesOf(parsed), from: now.AddDate(-past, 0, 0), to: now.AddDate(future, 0, 0)}
	var events []event
	for _, e := range parsed.Events() {
		one, err := r.event(e)
		if err != nil {
			return nil, fmt.Errorf("the event %q: %w", name(e), err)
		}
		events = append(events, one)
	}

	var out []schedule.Entry
	for _, e := range events {
		repeated, err := r.entries(e, events, maxEntries-len(out))
		if err != nil {
			return nil, fmt.Errorf("the event %q: %w", e.name, err)
		}
		out = append(out, repeated...)
	}
	return out, nil
}

// reader reads the events of a file.
type reader struct {
	zones    map[string]*time.Location // by name in the file
	from, to time.Time
}

// event is an event before repetitions are expanded.
type event struct {
	name, uid string
	start     moment
	length    time.Duration // in local time
	rule      *rrule.ROption
	except    []time.Time
	more      []time.Time
	// replaces is the repetition of the event with the same uid that this event replaces. Zero
	// means none.
	replaces    time.Time
	isCancelled bool
}

// moment is a time in a file. A floating moment is a local time without a zone, stored as UTC. A
// day is floating too.
type moment struct {
	time.Time
	floating, day bool
}

func name(e *ics.VEvent) string {
	p := e.GetProperty(ics.ComponentPropertySummary)
	if p == nil {
		return ""
	}
	return text.Truncate(text.OneLine(ics.FromText(p.Value)), maxName)
}

func (r reader) event(e *ics.VEvent) (out event, err error) {
	out.name = name(e)
	if p := e.GetProperty(ics.ComponentPropertyUniqueId); p != nil {
		out.uid = p.Value
	}
	if p := e.GetProperty(ics.ComponentPropertyStatus); p != nil {
		out.isCancelled = strings.EqualFold(p.Value, "CANCELLED")
	}

	if out.start, err = r.one(e, ics.ComponentPropertyDtStart); err != nil {
		return out, err
	}
	if out.start.IsZero() {
		return out, errors.New("it has no DTSTART")
	}
	if out.length, err = r.length(e, out.start); err != nil {
		return out, err
	}

	replaced, err := r.one(e, ics.ComponentPropertyRecurrenceId)
	if err != nil {
		return out, err
	}
	out.replaces = replaced.Time
	if out.except, err = r.many(e, ics.ComponentPropertyExdate); err != nil {
		return out, err
	}
	if out.more, err = r.many(e, ics.ComponentPropertyRdate); err != nil {
		return out, err
	}

	rules := e.GetProperties(ics.ComponentPropertyRrule)
	if len(rules) > 1 {
		return out, errors.New("it has two rules of repetition (RRULE)")
	}
	for _, p := range rules {
		if out.rule, err = rrule.StrToROptionInLocation(p.Value, out.start.Location()); err != nil {
			return out, fmt.Errorf("its repetition (RRULE) is not understood: %w", err)
		}
	}
	return out, nil
}

// length returns the duration of an event. The default is one day for a whole day, and zero
// otherwise.
func (r reader) length(e *ics.VEvent, start moment) (time.Duration, error) {
	end, err := r.one(e, ics.ComponentPropertyDtEnd)
	if err != nil {
		return 0, err
	}
	p := e.GetProperty(ics.ComponentPropertyDuration)
	switch {
	case !end.IsZero() && end.Before(start.Time):
		return 0, errors.New("it ends before it begins")
	case !end.IsZero():
		return end.Sub(start.Time), nil
	case p != nil:
		return parseDuration(p.Value)
	case start.day:
		return 24 * time.Hour, nil
	}
	return 0, nil
}

// entries returns an event and its repetitions, at most most of them. It omits repetitions that
// another event replaces.
func (r reader) entries(e event, all []event, most int) (out []schedule.Entry, err error) {
	if e.isCancelled {
		return nil, nil
	}
	starts := e.more
	if e.rule == nil {
		starts = append(starts, e.start.Time)
	} else {
		repeated, err := r.repeat(e, most)
		if err != nil {
			return nil, err
		}
		starts = append(starts, repeated...)
	}

	gone := map[int64]bool{}
	for _, t := range e.except {
		gone[t.Unix()] = true
	}
	for _, o := range all {
		if e.replaces.IsZero() && o.uid == e.uid && !o.replaces.IsZero() {
			gone[o.replaces.Unix()] = true
		}
	}

	for _, t := range starts {
		if gone[t.Unix()] {
			continue
		}
		if len(out) == most {
			return nil, fmt.Errorf("the calendar names more than %d times", maxEntries)
		}
		out = append(out, schedule.Entry{Text: e.name, From: t.UTC(), To: t.Add(e.length).UTC(), Floating: e.start.floating})
	}
	return out, nil
}

// repeat expands a recurrence rule. It returns an error if the event repeats more than once a day.
func (r reader) repeat(e event, most int) ([]time.Time, error) {
	o := *e.rule
	if o.Freq > rrule.DAILY {
		return nil, errors.New("it is repeated each hour or more often; only days, weeks, months and years are understood")
	}
	if e.start.Before(r.from.AddDate(-200, 0, 0)) || e.start.After(r.to) {
		return nil, nil // probably a wrong date, or too far in the future
	}

	o.Dtstart = e.start.Time
	if end := r.to.In(e.start.Location()); o.Until.IsZero() || o.Until.After(end) {
		o.Until = end
	}
	rule, err := rrule.NewRRule(o)
	if err != nil {
		return nil, fmt.Errorf("its repetition (RRULE) is not understood: %w", err)
	}

	var out []time.Time
	next := rule.Iterator()
	for seen := 0; ; seen++ {
		t, ok := next()
		switch {
		case !ok:
			return out, nil
		case seen > 200*366+most:
			return nil, fmt.Errorf("the calendar names more than %d times", maxEntries)
		case t.Add(e.length).Before(r.from):
			continue
		}
		out = append(out, t)
	}
}
