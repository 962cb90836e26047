package schedule_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rouse/scheduler/schedule"
)

func TestLocalToInstant(t *testing.T) {
	for name, c := range map[string]struct {
		zone, date           string
		hour, minute, second int
		want                 string // "" if there is none
	}{
		"plain":              {"Europe/Berlin", "2026-11-21", 8, 0, 7, "2026-11-21 07:00:07"},
		"gap":                {"Europe/Berlin", "2026-03-29", 2, 30, 0, "2026-03-29 01:00"},
		"repeat":             {"Europe/Berlin", "2026-10-25", 2, 30, 0, "2026-10-25 00:30"},
		"gap at midnight":    {"America/Havana", "2026-03-08", 0, 0, 0, "2026-03-08 05:00"},
		"a date skipped":     {"Pacific/Apia", "2011-12-30", 12, 0, 0, ""},
		"half an hour's gap": {"Australia/Lord_Howe", "2026-10-04", 2, 15, 0, "2026-10-03 15:30"},
	} {
		t.Run(name, func(t *testing.T) {
			zone, err := time.LoadLocation(c.zone)
			if err != nil {
				t.Fatal(err)
			}

			y, m, d := at(c.date + " 00:00").Date()
			got, ok := schedule.LocalToInstant(y, m, d, c.hour, c.minute, c.second, zone)
			if ok != (c.want != "") || (ok && !got.Equal(at(c.want))) {
				t.Errorf("%s %t, want %s", got, ok, c.want)
			}
		})
	}
	if _, ok := schedule.LocalToInstant(2026, 2, 30, 0, 0, 0, time.UTC); ok {
		t.Error("there is a 30 February")
	}
	if _, ok := schedule.LocalToInstant(2026, 13, 5, 0, 0, 0, time.UTC); ok {
		t.Error("there is a thirteenth month")
	}
}

func TestNextTimeOfDay(t *testing.T) {
	for name, c := range map[string]struct {
		zone, after  string
		hour, minute int
		want         string
	}{
		"today":               {"Europe/Berlin", "2026-11-21 06:59", 8, 0, "2026-11-21 07:00"},
		"tomorrow":            {"Europe/Berlin", "2026-11-21 07:00", 8, 0, "2026-11-22 07:00"},
		"gap":                 {"Europe/Berlin", "2026-03-29 00:59", 2, 30, "2026-03-29 01:00"},
		"behind the gap":      {"Europe/Berlin", "2026-03-29 01:00", 2, 30, "2026-03-30 00:30"},
		"first of two":        {"Europe/Berlin", "2026-10-25 00:00", 2, 30, "2026-10-25 00:30"},
		"second of two":       {"Europe/Berlin", "2026-10-25 00:30", 2, 30, "2026-10-25 01:30"},
		"behind both":         {"Europe/Berlin", "2026-10-25 01:30", 2, 30, "2026-10-26 01:30"},
		"over a skipped date": {"Pacific/Apia", "2011-12-30 09:00", 8, 0, "2011-12-30 18:00"},
		"gap over midnight":   {"America/Nuuk", "2026-03-29 00:30", 23, 30, "2026-03-29 01:00"},
	} {
		t.Run(name, func(t *testing.T) {
			zone, err := time.LoadLocation(c.zone)
			if err != nil {
				t.Fatal(err)
			}
			if got := schedule.NextTimeOfDay(at(c.after), c.hour, c.minute, 0, zone); !got.Equal(at(c.want)) {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
	// The result is within two days, or three if a date is skipped. It shows the local time unless
	// every day in between skips it.
	rapid.Check(t, func(t *rapid.T) {
		zone, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}

		after := rapid.SampledFrom(append(changes(zone), at("2026-06-01 12:00"))).Draw(t, "near").Add(time.Duration(rapid.IntRange(-40*3600, 40*3600).Draw(t, "seconds")) * time.Second)
		hour, minute := rapid.IntRange(0, 23).Draw(t, "hour"), rapid.IntRange(0, 59).Draw(t, "minute")
		got := schedule.NextTimeOfDay(after, hour, minute, 0, zone)
		if !got.After(after) || got.Sub(after) > 50*time.Hour {
			t.Fatalf("%02d:%02d after %s is %s", hour, minute, after.In(zone), got.In(zone))
		}

		for n := after.Truncate(time.Minute).Add(time.Minute); n.Before(got); n = n.Add(time.Minute) {
			if l := n.In(zone); l.Hour() == hour && l.Minute() == minute {
				t.Fatalf("%02d:%02d after %s is %s, but %s comes before", hour, minute, after.In(zone), got.In(zone), l)
			}
		}
	})
}

func TestNextDay(t *testing.T) {
	for zone, c := range map[string][2]string{
		"Europe/Berlin":  {"2026-11-20 23:30", "2026-11-21 23:00"},
		"UTC":            {"2026-11-21 00:00", "2026-11-22 00:00"},
		"America/Havana": {"2026-03-07 20:00", "2026-03-08 05:00"}, // 00:00 is skipped
		"Pacific/Apia":   {"2011-12-29 20:00", "2011-12-30 10:00"}, // 30 December is skipped
	} {
		z, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		if got := schedule.NextDay(at(c[0]), z); !got.Equal(at(c[1])) {
			t.Errorf("%s: %s, want %s", zone, got, c[1])
		}
	}
}

// Last returns the last instants of NextWithExcluded.
func TestLast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := parse(t, rapid.SampledFrom([]schedule.Options{
			{Cron: "*/15 * * * *"}, {Cron: "30 2 * * *", Timezone: "Europe/Berlin"}, {Cron: "0-20 9 * * 1"}, {Cron: "0 0 29 2 *"}, {Every: "45s"},
			{At: "2026-03-29T00:00:00Z"}, {Cron: "0 0 * * *", Exclude: []string{"2026-03-20..2026-03-28"}},
		}).Draw(t, "schedule"))
		after := at("2026-03-01 00:00").Add(time.Duration(rapid.IntRange(0, 30*24*60).Draw(t, "after")) * time.Minute)
		before := after.Add(time.Duration(rapid.IntRange(-60, 3*24*60).Draw(t, "before")) * time.Minute)
		n := rapid.IntRange(1, 300).Draw(t, "n")
		var all []time.Time
		for i, _ := s.NextWithExcluded(after); !i.IsZero() && i.Before(before); i, _ = s.NextWithExcluded(i) {
			all = append(all, i)
		}

		all = all[max(0, len(all)-n):]
		if got := s.Last(after, before, n); !slices.Equal(got, all) {
			t.Fatalf("%s: %d from %v, want %d", s, len(got), got, len(all))
		}
	})

	// The lower bound may be long ago, with many instants after it.
	every := parse(t, schedule.Options{Cron: "* * * * * *"})
	if got := every.Last(time.Time{}, at("2026-11-21 08:00"), 3); len(got) != 3 || !got[2].Equal(at("2026-11-21 07:59:59")) {
		t.Errorf("%v", got)
	}

	// All instants may be in the last part of the period.
	burst := parse(t, schedule.Options{Cron: "* 0-9 8 * * *"})
	if got := burst.Last(at("2026-11-21 08:00"), at("2026-11-21 08:30"), 3); len(got) != 3 || !got[0].Equal(at("2026-11-21 08:09:57")) || !got[2].Equal(at("2026-11-21 08:09:59")) {
		t.Errorf("%v", got)
	}
}
