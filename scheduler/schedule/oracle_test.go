package schedule_test

import (
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rouse/scheduler/schedule"
)

// field is a field of a cron expression, with its text and its allowed values.
type field struct {
	text   string
	values []int
}

func (f field) has(n int) bool { return slices.Contains(f.values, n) }
func (f field) star() bool     { return strings.HasPrefix(f.text, "*") }

// spec is a five-field expression for the oracle, which does not need to parse it.
type spec struct{ minute, hour, dom, month, dow field }

func (s spec) String() string {
	return strings.Join([]string{s.minute.text, s.hour.text, s.dom.text, s.month.text, s.dow.text}, " ")
}

// on reports whether a local time matches. Local times are stored as UTC.
func (s spec) on(naive time.Time) bool {
	dom, dow := s.dom.has(naive.Day()), s.dow.has(int(naive.Weekday()))
	day := dom || dow
	if s.dom.star() || s.dow.star() {
		day = dom && dow
	}
	return s.minute.has(naive.Minute()) && s.hour.has(naive.Hour()) && s.month.has(int(naive.Month())) && day
}

// reading returns the local time of t, stored as UTC.
func reading(t time.Time, zone *time.Location) time.Time {
	_, offset := t.In(zone).Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// fires returns the instants of a spec by simulating a local clock minute by minute, according to
// spec/scheduler.md. A fixed local time counts when the clock first shows or passes it, unless the
// zone skipped its whole date. A spec of every hour counts whenever the local time matches.
func (s spec) fires(zone *time.Location, from, to time.Time) []time.Time {
	var out []time.Time
	shown := reading(from, zone)
	for t := from.Add(time.Minute); !t.After(to); t = t.Add(time.Minute) {
		now := reading(t, zone)
		if len(s.hour.values) == 24 {
			if s.on(now) {
				out = append(out, t)
			}
			continue
		}

		due := false
		for r := shown.Add(time.Minute); !r.After(now); r = r.Add(time.Minute) {
			day := r.Truncate(24 * time.Hour)
			skipped := day.After(shown.Truncate(24*time.Hour)) && day.Before(now.Truncate(24*time.Hour))
			due = due || s.on(r) && !skipped
		}

		if due {
			out = append(out, t)
		}

		if now.After(shown) {
			shown = now
		}
	}

	return out
}

func drawField(t *rapid.T, name string, low, high int, kinds ...string) field {
	var f field
	all := func(step int) {
		for n := low; n <= high; n += step {
			f.values = append(f.values, n)
		}
	}

	switch rapid.SampledFrom(kinds).Draw(t, name+" kind") {
	case "star":
		f.text = "*"
		all(1)
	case "step":
		step := rapid.IntRange(2, (high-low)/2).Draw(t, name+" step")
		f.text = "*/" + itoa(step)
		all(step)
	case "range":
		a := rapid.IntRange(low, high).Draw(t, name+" from")
		b := rapid.IntRange(a, high).Draw(t, name+" to")
		f.text = itoa(a) + "-" + itoa(b)
		low, high = a, b
		all(1)
	case "list":
		f.values = rapid.SliceOfNDistinct(rapid.IntRange(low, high), 1, 3, rapid.ID[int]).Draw(t, name)
		var texts []string
		for _, v := range f.values {
			texts = append(texts, itoa(v))
		}
		f.text = strings.Join(texts, ",")
	}

	return f
}

// changes returns the clock changes of a zone from 2000 to 2040.
func changes(zone *time.Location) []time.Time {
	var out []time.Time
	offset := func(t time.Time) int { _, o := t.In(zone).Zone(); return o }
	for t := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC); t.Year() <= 2040; t = t.Add(24 * time.Hour) {
		if offset(t) == offset(t.Add(24*time.Hour)) {
			continue
		}
		minute := sort.Search(24*60, func(m int) bool { return offset(t.Add(time.Duration(m)*time.Minute)) != offset(t) })
		out = append(out, t.Add(time.Duration(minute)*time.Minute))
	}

	return out
}

// Next agrees with the oracle around every clock change.
func TestNextAgainstTheClock(t *testing.T) {
	known := map[string][]time.Time{}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(zones).Draw(t, "zone")
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}

		if known[name] == nil {
			known[name] = append(changes(zone), time.Date(2028, 2, 28, 12, 0, 0, 0, time.UTC))
		}

		middle := rapid.SampledFrom(known[name]).Draw(t, "change")
		s := spec{
			minute: drawField(t, "minute", 0, 59, "star", "step", "range", "list", "list"),
			hour:   drawField(t, "hour", 0, 23, "star", "step", "range", "list", "list"),
			dom:    drawField(t, "dom", 1, 31, "star", "star", "star", "step", "range"),
			month:  drawField(t, "month", 1, 12, "star", "star", "star", "step"),
			dow:    drawField(t, "dow", 0, 6, "star", "star", "step", "range"),
		}

		from, to := middle.Add(-40*time.Hour), middle.Add(40*time.Hour)
		compare(t, s, name, zone, from, to)
	})
}

func compare(t fataler, s spec, name string, zone *time.Location, from, to time.Time) {
	t.Helper()
	compareParsed(t, parse(t, schedule.Options{Cron: s.String(), Timezone: name}), s, zone, from, to)
}

type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func compareParsed(t fataler, parsed *schedule.Schedule, s spec, zone *time.Location, from, to time.Time) {
	t.Helper()
	var got []time.Time
	for n := parsed.Next(from); !n.IsZero() && !n.After(to); n = parsed.Next(n) {
		if len(got) > 0 && !n.After(got[len(got)-1]) {
			t.Fatalf("%s in %s: %s does not come after %s", s, zone, n, got[len(got)-1])
		}
		got = append(got, n)
	}

	want := s.fires(zone, from, to)
	if !slices.EqualFunc(got, want, time.Time.Equal) {
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || !got[i].Equal(want[i]) {
				t.Fatalf("%s in %s from %s: fire %d differs\n got %v\nwant %v", s, zone, from, i, got[min(i, len(got)):min(i+3, len(got))], want[min(i, len(want)):min(i+3, len(want))])
			}
		}
	}
}
