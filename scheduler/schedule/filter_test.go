package schedule_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rouse/scheduler/schedule"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

// calendarOf returns a function that finds calendars by name.
func calendarOf(all ...*schedule.Calendar) func(string) *schedule.Calendar {
	return func(name string) *schedule.Calendar {
		i := slices.IndexFunc(all, func(c *schedule.Calendar) bool { return c.Name() == name })
		if i < 0 {
			return nil
		}
		return all[i]
	}
}

// An instant is due if no exclusion covers it and, if the schedule is limited to certain times, one
// of them covers it. Searching must agree with checking single instants. The entries may overlap,
// touch, be empty or run backwards.
func TestFilters(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		begin := at("2026-03-27 00:00") // the clock changes two days later
		draw := func(name string) (*schedule.Calendar, []schedule.Entry) {
			var all []schedule.Entry
			for range rapid.IntRange(0, 4).Draw(t, name) {
				from := begin.Add(time.Duration(rapid.IntRange(-10, 120).Draw(t, "from")) * time.Hour)
				e := schedule.Entry{Text: name, From: from, To: from.Add(time.Duration(rapid.IntRange(-1, 30).Draw(t, "length")) * time.Hour)}
				if rapid.Bool().Draw(t, "floating") {
					e.Floating, e.From = true, e.From.Truncate(24*time.Hour)
					e.To = e.From.AddDate(0, 0, rapid.IntRange(0, 2).Draw(t, "days"))
				}
				all = append(all, e)
			}
			c := schedule.NewCalendar(name)
			c.Set(all)
			return c, all
		}
		out, outs := draw("out")
		in, ins := draw("in")
		o := schedule.Options{Every: "20m", Location: zone, Calendar: calendarOf(out, in), Exclude: []string{"out"}}
		kept := rapid.Bool().Draw(t, "only")
		if kept {
			o.Only = []string{"in"}
		}
		s := parse(t, o)

		covers := func(all []schedule.Entry, at time.Time) bool {
			return slices.ContainsFunc(all, func(e schedule.Entry) bool {
				when := at
				if e.Floating {
					when = reading(at, zone)
				}
				return !when.Before(e.From) && when.Before(e.To)
			})
		}
		next := s.Next(begin.Add(-1))
		for n := begin; n.Before(begin.Add(6 * 24 * time.Hour)); n = n.Add(20 * time.Minute) {
			want := !covers(outs, n) && (!kept || covers(ins, n))
			_, why := s.NextWithExcluded(n.Add(-1))
			if (why == "") != want || next.Equal(n) != want {
				t.Fatalf("%s: %q, the next found is %s, want it: %t (out %v, in %v)", n.In(zone), why, next.In(zone), want, outs, ins)
			}
			if want {
				next = s.Next(n)
			}
			if outside, end := s.Outside(n); outside != strings.HasPrefix(why, "only:") || outside && !end.IsZero() && !end.After(n) {
				t.Fatalf("%s: %q, and it is outside: %t, until %s", n, why, outside, end)
			}
		}

		for _, gone := range s.LeftOut(begin, begin.Add(5*24*time.Hour), 1000) {
			if _, why := s.NextWithExcluded(gone.At.Add(-1)); why != gone.Why || why == "" {
				t.Fatalf("%s is listed as left out (%q), and is %q", gone.At, gone.Why, why)
			}
		}
	})
}

// The entries of a calendar can change at any time. They do not affect the hash of a schedule.
func TestCalendarChanges(t *testing.T) {
	c := schedule.NewCalendar("holidays")
	s := parse(t, schedule.Options{Cron: "0 8 * * *", Exclude: []string{"holidays", "2026-12-24"}, Calendar: calendarOf(c)})
	hash, day := s.Hash(), at("2026-12-24 00:00")
	if n := s.Next(day); n != at("2026-12-25 08:00") {
		t.Errorf("with an empty calendar: %s", n)
	}
	c.Set([]schedule.Entry{{Text: "Christmas", From: at("2026-12-25 00:00"), To: at("2026-12-27 00:00"), Floating: true}})
	if n := s.Next(day); n != at("2026-12-27 08:00") {
		t.Errorf("with its entry: %s", n)
	}
	if _, why := s.NextWithExcluded(at("2026-12-25 00:00")); why != "exclude: holidays (Christmas)" {
		t.Errorf("it says %q", why)
	}
	if s.Hash() != hash || len(s.Calendars()) != 1 {
		t.Errorf("its hash is %s, and was %s", s.Hash(), hash)
	}
	if old := parse(t, schedule.Options{Cron: "0 8 * * *"}).Hash(); old != "d54a2f1c0b8cbd55" {
		t.Errorf("a schedule without any of it has another hash than before: %s", old)
	}

	// Limited to an empty calendar, or to one with only past entries, a schedule has no instants.
	only := parse(t, schedule.Options{Cron: "0 8 * * *", Only: []string{"holidays"}, Calendar: calendarOf(c)})
	if n := only.Next(day); n != at("2026-12-25 08:00") {
		t.Errorf("kept to its entry: %s", n)
	}
	if n := only.Next(at("2026-12-26 09:00")); !n.IsZero() {
		t.Errorf("after its last entry: %s", n)
	}
	c.Set(nil)
	if n, why := only.NextWithExcluded(day); !only.Next(day).IsZero() || n != at("2026-12-24 08:00") || why != "only: not in holidays" {
		t.Errorf("kept to an empty one: %s %q", n, why)
	}
}

func TestFilterErrors(t *testing.T) {
	c := schedule.NewCalendar("team")
	for _, one := range []struct {
		exclude, only []string
		want          string
	}{
		{[]string{"teem"}, nil, `exclude "teem": is neither a date like 2026-12-25, a range like 2026-12-24..2026-12-31, nor the name of one of the calendars`},
		{nil, []string{"2026-13-01"}, `only "2026-13-01": is neither a date`},
		{nil, []string{"2026-12-31..2026-12-01"}, "the range runs backwards"},
		{[]string{"0001-01-01..9999-12-31"}, nil, `exclude "0001-01-01..9999-12-31": leaves no instant of the schedule`},
		{nil, []string{"1999-01-01"}, `only "1999-01-01": leaves no instant of the schedule`},
		{[]string{"2026-12-24"}, []string{"2026-12-24"}, "leaves no instant of the schedule"},
		{[]string{"team"}, []string{"team"}, ""}, // accepted, because calendars can change
	} {
		_, err := schedule.Parse(schedule.Options{Cron: "0 8 * * *", Exclude: one.exclude, Only: one.only, Calendar: calendarOf(c)})
		if got := fmt.Sprint(err); one.want == "" && err != nil || !contains(got, one.want) {
			t.Errorf("exclude %v, only %v: %s, want %s", one.exclude, one.only, got, one.want)
		}
	}
}
