package ledger_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"rouse/internal/ledger/budget"
)

// TestDayOf checks the end of days of different lengths.
func TestDayOf(t *testing.T) {
	for _, c := range []struct{ zone, at, name, ends string }{
		{"UTC", "2026-11-21T00:00:00Z", "2026-11-21", "2026-11-22T00:00:00Z"},
		{"UTC", "2026-11-21T23:59:59.999999999Z", "2026-11-21", "2026-11-22T00:00:00Z"},
		{"Europe/Berlin", "2026-11-20T23:00:00Z", "2026-11-21", "2026-11-21T23:00:00Z"},
		{"Europe/Berlin", "2026-11-20T22:59:59Z", "2026-11-20", "2026-11-20T23:00:00Z"},
		{"Europe/Berlin", "2026-03-28T23:30:00Z", "2026-03-29", "2026-03-29T22:00:00Z"},     // 23 hours
		{"Europe/Berlin", "2026-10-24T22:30:00Z", "2026-10-25", "2026-10-25T23:00:00Z"},     // 25 hours
		{"America/Sao_Paulo", "2018-11-03T12:00:00Z", "2018-11-03", "2018-11-04T03:00:00Z"}, // the next day begins at one
		{"America/Sao_Paulo", "2018-02-18T02:30:00Z", "2018-02-17", "2018-02-18T03:00:00Z"}, // its last hour occurs twice
		{"Pacific/Apia", "2011-12-30T09:00:00Z", "2011-12-29", "2011-12-30T10:00:00Z"},      // the next day is the 31st
		{"Asia/Kathmandu", "2026-11-21T12:00:00Z", "2026-11-21", "2026-11-21T18:15:00Z"},
	} {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}

		at, err := time.Parse(time.RFC3339Nano, c.at)
		if err != nil {
			t.Fatal(err)
		}
		if d := budget.DayOf(at, zone); d.Name != c.name || d.Ends.Format(time.RFC3339) != c.ends {
			t.Errorf("%s in %s is of %s until %s, want %s until %s", c.at, c.zone, d.Name, d.Ends.Format(time.RFC3339), c.name, c.ends)
		}
	}
}

func TestDayOfAny(t *testing.T) {
	zones := []string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "America/Havana", "Asia/Beirut", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Cairo"}
	rapid.Check(t, func(t *rapid.T) {
		zone, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}

		at := time.Unix(rapid.Int64Range(946684800, 2208988800).Draw(t, "at"), 0)
		d := budget.DayOf(at, zone)
		if !d.Ends.After(at) || d.Ends.Sub(at) > 26*time.Hour {
			t.Fatalf("%s ends at %s", at, d.Ends)
		}
		if last := d.Ends.Add(-1); budget.DayOf(last, zone).Name != d.Name || budget.DayOf(d.Ends, zone).Name == d.Name {
			t.Fatalf("%s is not the end of %s", d.Ends, d.Name)
		}
	})
}

// TestMonthOf checks that a month ends with its last day, also when the clocks change, and that its
// name is a prefix of the names of its days.
func TestMonthOf(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		zone, err := time.LoadLocation(rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "America/New_York", "Pacific/Apia", "Asia/Beirut", "Pacific/Kiritimati", "America/Nuuk"}).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		at := time.Unix(rapid.Int64Range(1_200_000_000, 2_000_000_000).Draw(t, "at"), 0)
		m, d := budget.MonthOf(at, zone), budget.DayOf(at, zone)
		if m.Name != d.Name[:7] || m.Ends.Before(d.Ends) || m.Ends.Sub(at) > 32*24*time.Hour {
			t.Fatalf("%s: %+v, %+v", at.In(zone), m, d)
		}
		if last, next := budget.DayOf(m.Ends.Add(-1), zone), budget.MonthOf(m.Ends, zone); last.Name[:7] != m.Name || next.Name == m.Name || last.Ends != m.Ends {
			t.Fatalf("%s: the month %+v ends within %+v and %+v", at.In(zone), m, last, next)
		}
	})
}
