package schedule_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rouse/scheduler/schedule"
)

// A window fires once on each allowed local day, at a time that depends only on job, date and
// window. The time is within the window in local time, even if the clock changes and if the window
// crosses midnight.
func TestWindowMoments(t *testing.T) {
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Beirut", "Pacific/Apia", "America/Nuuk"}
	rapid.Check(t, func(t *rapid.T) {
		zone, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		opens, closes := rapid.IntRange(0, 24*60-1).Draw(t, "opens"), rapid.IntRange(0, 24*60).Draw(t, "closes")
		if opens == closes {
			return
		}
		clock := func(m int) string { return fmt.Sprintf("%02d:%02d", m/60, m%60) }
		o := schedule.Options{Window: clock(opens) + "-" + clock(closes), Location: zone, Job: rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "job")}
		s, again := parse(t, o), parse(t, o)

		from := rapid.SampledFrom(append(changes(zone), at("2026-02-27 12:00"))).Draw(t, "around").Add(-72 * time.Hour)
		var last string // local date of the last opening
		for n := s.Next(from); n.Before(from.Add(7 * 24 * time.Hour)); n = s.Next(n) {
			moment, local := s.Actual(n), n.In(zone)
			date := local.Format(time.DateOnly)
			// A clock change at midnight delayed the opening of the previous day's window.
			if opens > 12*60 && local.Hour() < 12 {
				date = local.AddDate(0, 0, -1).Format(time.DateOnly)
			}
			if !moment.Equal(again.Actual(n)) || moment.Before(n) || moment.Sub(n) > 25*time.Hour {
				t.Fatalf("%s on %s: %s, then %s", o.Window, date, moment, again.Actual(n))
			}
			if date == last {
				t.Fatalf("%s opens twice on %s", o.Window, date)
			}
			last = date

			// Without a nearby clock change, the time is within the window in local time.
			_, before := n.Add(-3 * time.Hour).In(zone).Zone()
			if _, after := moment.Add(26 * time.Hour).In(zone).Zone(); before != after {
				continue
			}
			local = moment.In(zone)
			minute := local.Hour()*60 + local.Minute()
			within := opens <= minute && minute < closes
			if closes < opens {
				within = minute >= opens || minute < closes
			}
			if !within {
				t.Fatalf("%s on %s: %s", o.Window, date, local)
			}
		}
		if last == "" {
			t.Fatalf("%s never opens", o.Window)
		}
	})
}

// Times are spread over the window, across days and across jobs. Consecutive days are not
// correlated.
func TestWindowSpreads(t *testing.T) {
	const parts = 10
	var byDay, byJob [parts]int
	s := parse(t, schedule.Options{Window: "02:00-05:00", Job: "backup"})
	n := at("2026-01-01 00:00")
	for range 1000 {
		n = s.Next(n)
		byDay[s.Actual(n).Sub(n)*parts/(3*time.Hour)]++
	}
	for i := range 1000 {
		s := parse(t, schedule.Options{Window: "02:00-05:00", Job: fmt.Sprint("job-", i)})
		n := s.Next(at("2026-01-01 00:00"))
		byJob[s.Actual(n).Sub(n)*parts/(3*time.Hour)]++
	}
	for i := range parts {
		// The expected value is 100, and 60 is four standard deviations below it.
		if byDay[i] < 60 || byJob[i] < 60 {
			t.Errorf("part %d of the window has %d of a thousand days and %d of a thousand jobs", i, byDay[i], byJob[i])
		}
	}
}

func TestWindows(t *testing.T) {
	for window, want := range map[string]string{
		"02:00-05:00": "each day once between 02:00 and 05:00 (UTC)", "23:30-1:00": "each day once between 23:30 and 01:00 (UTC)", "00:00-24:00": "each day once between 00:00 and 24:00 (UTC)",
		"02:00-02:00": "opens and closes at the same time", "2-5": "is not two times of day", "24:00-02:00": "is not two times of day", "02:00": "is not two times of day", "x-05:00": "is not two times of day", "02:00-x": "is not two times of day", "02:00-05:00-06:00": "is not two times of day",
	} {
		s, err := schedule.Parse(schedule.Options{Window: window})
		if got := describe(s, err); !contains(got, want) {
			t.Errorf("%s: %s, want %s", window, got, want)
		}
	}
	for days, want := range map[string]string{
		"1-5": "once between 02:00 and 05:00 on Monday to Friday", "mon,thu": "once between 02:00 and 05:00 on Monday and Thursday", "8": "are not days", "1 2": "are not days", "0 0 1 1 *": "are not days", "x": "are not days",
	} {
		s, err := schedule.Parse(schedule.Options{Window: "02:00-05:00", Days: days})
		if got := describe(s, err); !contains(got, want) {
			t.Errorf("%s: %s, want %s", days, got, want)
		}
	}

	// In Nuuk, the clock changed from 23:00 to midnight. The window of that evening opens then and
	// closes the next morning.
	for i := range 100 {
		s := parse(t, schedule.Options{Window: "23:30-04:00", Timezone: "America/Nuuk", Job: fmt.Sprint("job", i)})
		n := s.Next(at("2035-03-24 12:00"))
		if moment := s.Actual(n); !n.Equal(at("2035-03-25 01:00")) || moment.Before(n) || !moment.Before(at("2035-03-25 05:00")) {
			t.Fatalf("the window that opens at %s has its moment at %s", n, moment)
		}
	}

	// A window that overlaps a gap begins after the gap. A window inside of a gap fires right after
	// the gap.
	for window, want := range map[string]string{"02:00-02:30": "2026-03-29 03:00:00", "02:30-03:00": "2026-03-29 03:00:00"} {
		s := parse(t, schedule.Options{Window: window, Timezone: "Europe/Berlin", Job: "j"})
		n := s.Next(at("2026-03-28 12:00"))
		if got := s.Actual(n).In(s.Zone()).Format(time.DateTime); got != want {
			t.Errorf("%s in the gap: %s", window, got)
		}
	}
}

func describe(s *schedule.Schedule, err error) string {
	if err != nil {
		return err.Error()
	}
	return s.Describe()
}
