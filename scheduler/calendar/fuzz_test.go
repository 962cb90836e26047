package calendar_test

import (
	"testing"
	"time"

	"rouse/scheduler/calendar"
	"rouse/scheduler/schedule"
)

// FuzzParse checks that Parse never panics, hangs or exceeds the maximum number of entries. A
// parsed calendar can be queried at any time.
func FuzzParse(f *testing.F) {
	for _, event := range []string{
		"SUMMARY:Off\nDTSTART;VALUE=DATE:20261224\nDTEND;VALUE=DATE:20261227\nRRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
		"SUMMARY:Off\nDTSTART;TZID=Europe/Berlin:20270327T023000\nDURATION:PT2H\nRRULE:FREQ=DAILY;BYSETPOS=-1;BYDAY=MO,-1FR;INTERVAL=7",
		"UID:1\nDTSTART:20270104T080000Z\nRRULE:FREQ=WEEKLY;WKST=SU;BYWEEKNO=53\nEXDATE:20270104T080000Z,20270111T080000Z\nRDATE:20270105T080000Z",
		"UID:1\nRECURRENCE-ID:20270111T080000Z\nDTSTART:20270112T080000Z", "DTSTART;X=\"a;b\":20270112T080000Z", "BEGIN:VALARM\nEND:VALARM",
		"DTSTART:00010101T000000Z\nRRULE:FREQ=DAILY;BYYEARDAY=-366", "DTSTART:99991231T235959Z\nRRULE:FREQ=MONTHLY",
	} {
		f.Add(file(event))
	}

	f.Fuzz(func(t *testing.T, text []byte) {
		began := time.Now()
		entries, err := calendar.Parse(text, now)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
		if err != nil && len(entries) > 0 || len(entries) > 50_000 {
			t.Fatalf("%d entries beside %v", len(entries), err)
		}

		c := schedule.NewCalendar("c")
		c.Set(entries)
		s, err := schedule.Parse(schedule.Options{Every: "1h", Only: []string{"c"}, Exclude: []string{"2027-01-01"}, Calendar: func(string) *schedule.Calendar { return c }, Timezone: "Europe/Berlin"})
		if err != nil {
			t.Fatal(err)
		}
		for n, i := s.Next(now), 0; !n.IsZero() && i < 20; n, i = s.Next(n), i+1 {
			if _, why := s.NextWithExcluded(n.Add(-1)); why != "" {
				t.Fatalf("%s is due, and left out: %s", n, why)
			}
		}
	})
}
