package schedule_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rouse/scheduler/schedule"
)

func TestClockChangeNote(t *testing.T) {
	const ny, berlin = "America/New_York", "Europe/Berlin"
	for name, c := range map[string]struct {
		cron, zone, after string
		want              string
	}{
		"gap":                     {"30 2 * * *", ny, "2026-03-08 00:00", "02:30 does not exist on 2026-03-08: runs at the first instant after the gap"},
		"gap, its first reading":  {"0 2 * * *", ny, "2026-03-08 00:00", "02:00 does not exist on 2026-03-08: runs at the first instant after the gap"},
		"gap, the reading behind": {"0 3 * * *", ny, "2026-03-08 00:00", ""},
		"gap, one of two":         {"0 2,3 * * *", ny, "2026-03-08 00:00", "02:00 does not exist on 2026-03-08: runs at the first instant after the gap"},
		"gap, many in one":        {"*/15 2 * * *", ny, "2026-03-08 00:00", "02:00 to 02:45 do not exist on 2026-03-08: runs once, at the first instant after the gap"},
		"gap, seconds":            {"7 30 2 * * *", ny, "2026-03-08 00:00", "02:30:07 does not exist on 2026-03-08: runs at the first instant after the gap"},
		"gap, another day":        {"30 2 * * *", ny, "2026-03-09 00:00", ""},
		"gap, real time":          {"30 * * * *", ny, "2026-03-08 06:45", ""},
		"gap over midnight":       {"30 23 * * *", "America/Nuuk", "2026-03-28 06:00", "23:30 does not exist on 2026-03-28: runs at the first instant after the gap"},
		"gap of half an hour":     {"15 2 * * *", "Australia/Lord_Howe", "2026-10-03 00:00", "02:15 does not exist on 2026-10-04: runs at the first instant after the gap"},
		"a date that was skipped": {"0 0 * * *", "Pacific/Apia", "2011-12-30 08:00", ""},
		"repeat":                  {"30 1 * * *", ny, "2026-11-01 00:00", "01:30 comes twice on 2026-11-01: runs the first time only"},
		"repeat, behind it":       {"0 2 * * *", ny, "2026-11-01 00:00", ""},
		"repeat, before it":       {"59 0 * * *", ny, "2026-11-01 00:00", ""},
		"repeat, real time":       {"30 * * * *", ny, "2026-11-01 05:00", ""},
		"repeat, another day":     {"30 1 * * *", ny, "2026-11-02 00:00", ""},
		"repeat in half an hour":  {"45 1 * * *", "Australia/Lord_Howe", "2026-04-04 00:00", "01:45 comes twice on 2026-04-05: runs the first time only"},
		"no change of the clock":  {"30 2 * * *", "UTC", "2026-03-28 12:00", ""},
		"gap in Berlin":           {"0 0 2 29 3 *", berlin, "2026-01-01 00:00", "02:00 does not exist on 2026-03-29: runs at the first instant after the gap"},
	} {
		t.Run(name, func(t *testing.T) {
			s := parse(t, schedule.Options{Cron: c.cron, Timezone: c.zone})
			if got := s.ClockChangeNote(s.Next(at(c.after))); got != c.want {
				t.Errorf("%s: %q, want %q", s.Next(at(c.after)), got, c.want)
			}
		})
	}

	// Times that are not occurrences have no note: the second 01:30, and a time between two
	// instants.
	s := parse(t, schedule.Options{Cron: "30 1 * * *", Timezone: ny})
	for _, text := range []string{"2026-11-01 06:30", "2026-11-01 05:31", "2026-03-08 07:00"} {
		if got := s.ClockChangeNote(at(text)); got != "" {
			t.Errorf("%s: %q", text, got)
		}
	}

	for _, o := range []schedule.Options{{Every: "1h", Timezone: ny}, {At: "2026-11-01T01:30:00-04:00", Timezone: ny}} {
		s := parse(t, o)
		if got := s.ClockChangeNote(s.Next(at("2026-11-01 05:00"))); got != "" {
			t.Errorf("%s: %q", s, got)
		}
	}
}

// An occurrence at a local time other than the specified one always has a note.
func TestClockChangeNoteOfEveryMovedOccurrence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(zones).Draw(t, "zone")
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}

		middle := rapid.SampledFrom(append(changes(zone), at("2028-02-28 12:00"))).Draw(t, "change")
		spec := spec{minute: drawField(t, "minute", 0, 59, "list"), hour: drawField(t, "hour", 0, 23, "list"), dom: field{text: "*"}, month: field{text: "*"}, dow: field{text: "*"}}
		s := parse(t, schedule.Options{Cron: spec.String(), Timezone: name})
		for n := s.Next(middle.Add(-30 * time.Hour)); n.Before(middle.Add(30 * time.Hour)); n = s.Next(n) {
			local, note := n.In(zone), s.ClockChangeNote(n)
			named := spec.minute.has(local.Minute()) && spec.hour.has(local.Hour())
			if !named && !strings.Contains(note, "not exist") {
				t.Fatalf("%s at %s: %q", spec, local, note)
			}

			twice := false
			for later := n.Add(15 * time.Minute); later.Before(n.Add(4 * time.Hour)); later = later.Add(15 * time.Minute) {
				twice = twice || reading(later, zone).Equal(reading(n, zone))
			}
			if named && twice != strings.Contains(note, "comes twice") && !strings.Contains(note, "not exist") {
				t.Fatalf("%s at %s, which comes twice: %t: %q", spec, local, twice, note)
			}
		}
	})
}

func TestNextWithExcluded(t *testing.T) {
	s := parse(t, schedule.Options{Cron: "0 8 * * *", Timezone: "Europe/Berlin", Exclude: []string{" 2026-12-25", "2026-12-27..2026-12-28", "2026-12-28"}})
	from := at("2026-12-24 00:00")
	for _, want := range []string{"", " 2026-12-25", "", "2026-12-27..2026-12-28", "2026-12-27..2026-12-28", ""} {
		n, excluded := s.NextWithExcluded(from)
		if strings.TrimPrefix(excluded, "exclude: ") != want || n.Sub(from) > 24*time.Hour || !n.After(from) {
			t.Errorf("after %s: %s %q, want %q", from, n, excluded, want)
		}
		if s.Matches(n) != (want == "") {
			t.Errorf("%s is an instant: %t", n, want != "")
		}
		from = n
	}

	once := parse(t, schedule.Options{At: "2026-11-21T08:00:00Z", Only: []string{"2026-11-21"}})
	if n, excluded := once.NextWithExcluded(at("2026-11-21 08:00")); !n.IsZero() || excluded != "" {
		t.Errorf("after the only instant: %s %q", n, excluded)
	}
}

// LeftOut returns at most n excluded instants, in order.
func TestLeftOut(t *testing.T) {
	s := parse(t, schedule.Options{Cron: "0 8 * * *", Exclude: []string{"2026-12-24..2026-12-27"}})
	for n, want := range map[int]int{0: 0, 1: 1, 3: 3, 10: 4} {
		gone := s.LeftOut(at("2026-12-01 00:00"), at("2027-01-01 00:00"), n)
		if len(gone) != want {
			t.Errorf("%d are listed, want %d: %v", len(gone), want, gone)
		}
		for i, g := range gone {
			if !g.At.Equal(at("2026-12-24 08:00").AddDate(0, 0, i)) || g.Why != "exclude: 2026-12-24..2026-12-27" {
				t.Errorf("the one at %d is %+v", i, g)
			}
		}
	}
}

// Next returns the instants of NextWithExcluded without the excluded ones.
func TestNextWithExcludedAgainstNext(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := parse(t, schedule.Options{
			Cron:     rapid.SampledFrom([]string{"*/15 * * * *", "30 2 * * *", "0 0 * * 1-5", "0,30 23 * * *"}).Draw(t, "cron"),
			Timezone: rapid.SampledFrom(zones).Draw(t, "zone"),
			Exclude:  rapid.SampledFrom([][]string{nil, {"2026-03-28"}, {"2026-03-29", "2026-03-31..2026-04-02"}, {"2026-10-25..2026-10-26"}}).Draw(t, "exclude"),
		})

		from := at(rapid.SampledFrom([]string{"2026-03-27 00:00", "2026-10-24 00:00"}).Draw(t, "from"))
		to := from.Add(8 * 24 * time.Hour)
		var all, next []time.Time
		for n, excluded := s.NextWithExcluded(from); n.Before(to); n, excluded = s.NextWithExcluded(n) {
			if excluded == "" {
				all = append(all, n)
			}
		}

		for n := s.Next(from); n.Before(to); n = s.Next(n) {
			next = append(next, n)
		}
		if !slices.Equal(all, next) {
			t.Fatalf("%s: %v, but Next gives %v", s, all, next)
		}
	})
}

func TestLastAndNext(t *testing.T) {
	leap := schedule.Options{Cron: "0 0 29 2 *"}
	for name, c := range map[string]struct {
		options             schedule.Options
		at                  string
		wantBefore, wantFor string
	}{
		"between":               {schedule.Options{Cron: "0 8 * * *"}, "2026-11-21 12:00", "2026-11-21 08:00", "2026-11-22 08:00"},
		"on an instant":         {schedule.Options{Cron: "0 8 * * *"}, "2026-11-21 08:00", "2026-11-21 08:00", "2026-11-22 08:00"},
		"just before":           {schedule.Options{Cron: "0 8 * * *"}, "2026-11-21 07:59:59", "2026-11-20 08:00", "2026-11-21 08:00"},
		"each second":           {schedule.Options{Cron: "* * * * * *"}, "2026-11-21 08:00:07", "2026-11-21 08:00:07", "2026-11-21 08:00:08"},
		"once a year":           {schedule.Options{Cron: "@yearly"}, "2026-12-31 00:00", "2026-01-01 00:00", "2027-01-01 00:00"},
		"too long ago":          {leap, "2026-11-21 08:00", "", "2028-02-29 00:00"},
		"not so long ago":       {leap, "2028-11-21 08:00", "2028-02-29 00:00", "2032-02-29 00:00"},
		"excluded":              {schedule.Options{Cron: "0 8 * * *", Exclude: []string{"2026-11-19..2026-11-23"}}, "2026-11-21 12:00", "2026-11-18 08:00", "2026-11-24 08:00"},
		"a grid":                {schedule.Options{Every: "90m"}, "2026-11-21 08:00", "2026-11-21 07:30", "2026-11-21 09:00"},
		"before the only one":   {schedule.Options{At: "2026-11-21T08:00:00Z"}, "2026-11-21 07:00", "", "2026-11-21 08:00"},
		"behind the only one":   {schedule.Options{At: "2026-11-21T08:00:00Z"}, "2026-12-21 07:00", "2026-11-21 08:00", ""},
		"a second, then a year": {schedule.Options{Cron: "* 0 0 1 1 *"}, "2026-12-01 00:00", "2026-01-01 00:00:59", "2027-01-01 00:00"},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := parse(t, c.options).LastAndNext(at(c.at))
			if !before.Equal(at(c.wantBefore)) || !after.Equal(at(c.wantFor)) {
				t.Errorf("%s and %s, want %s and %s", before, after, c.wantBefore, c.wantFor)
			}
		})
	}
}

func TestLastAndNextAgreeWithNext(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := parse(t, schedule.Options{
			Cron: spec{
				minute: drawField(t, "minute", 0, 59, "star", "step", "range", "list"), hour: drawField(t, "hour", 0, 23, "star", "step", "range", "list"),
				dom: drawField(t, "dom", 1, 28, "star", "range"), month: drawField(t, "month", 1, 12, "star", "range", "list"), dow: drawField(t, "dow", 0, 6, "star", "list"),
			}.String(),
			Timezone: rapid.SampledFrom(zones).Draw(t, "zone"),
			Exclude:  rapid.SampledFrom([][]string{nil, {"2026-03-01..2026-03-29"}, {"2025-02-28..2027-01-06"}}).Draw(t, "exclude"),
		})

		now := at("2026-01-01 00:00").Add(time.Duration(rapid.IntRange(0, 500*24*3600).Draw(t, "now")) * time.Second)
		before, after := s.LastAndNext(now)
		if before.IsZero() {
			if long := now.Add(-400 * 24 * time.Hour); !s.Next(long).Equal(after) {
				t.Fatalf("%s: nothing before %s, but %s", s, now, s.Next(long))
			}
			return
		}

		if before.After(now) || !after.After(now) || !s.Matches(before) || !s.Next(before).Equal(after) {
			t.Fatalf("%s: %s is between %s and %s, but %s follows", s, now, before, after, s.Next(before))
		}
	})
}
