package schedule_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rouse/internal/contract"
	"rouse/internal/domain"
	"rouse/scheduler/schedule"
)

func parse(t interface {
	Helper()
	Fatal(...any)
}, o schedule.Options) *schedule.Schedule {
	t.Helper()
	s, err := schedule.Parse(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func at(text string) time.Time {
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04", "2006-01-02 15:04:05"} {
		if v, err := time.Parse(layout, text); err == nil {
			return v
		}
	}
	return time.Time{}
}

// Next returns the expected instants of a schedule (OSA-77).
func TestNext(t *testing.T) {
	q := contract.Of(t, "OSA-77").Quote
	cases := map[string]struct {
		options schedule.Options
		after   string
		want    []string // in UTC
	}{
		"five fields":       {schedule.Options{Cron: q("30 8 * * *")}, "2026-11-21 08:30", []string{"2026-11-22 08:30", "2026-11-23 08:30"}},
		"six fields":        {schedule.Options{Cron: "*/20 * * * * *"}, "2026-11-21 08:30:01", []string{"2026-11-21 08:30:20", "2026-11-21 08:30:40", "2026-11-21 08:31:00"}},
		"zone":              {schedule.Options{Cron: "0 8 * * *", Timezone: "Asia/Tokyo"}, "2026-11-21 00:00", []string{"2026-11-21 23:00"}},
		"zone prefix":       {schedule.Options{Cron: "CRON_TZ=Asia/Tokyo 0 8 * * *"}, "2026-11-21 00:00", []string{"2026-11-21 23:00"}},
		"prefix and a tab":  {schedule.Options{Cron: "TZ=Asia/Tokyo\t0\t8 * * *"}, "2026-11-21 00:00", []string{"2026-11-21 23:00"}},
		"7 is Sunday":       {schedule.Options{Cron: "0 0 * * 7"}, "2026-11-21 12:00", []string{"2026-11-22 00:00", "2026-11-29 00:00"}},
		"range to 7":        {schedule.Options{Cron: "0 0 * * 6-7"}, "2026-11-20 12:00", []string{"2026-11-21 00:00", "2026-11-22 00:00", "2026-11-28 00:00"}},
		"steps of one":      {schedule.Options{Cron: "*/1 */1 * * *"}, "2026-11-21 08:59", []string{"2026-11-21 09:00", "2026-11-21 09:01"}},
		"the largest step":  {schedule.Options{Cron: "0 0 1/30 * *"}, "2026-11-01 12:00", []string{"2026-12-01 00:00", "2026-12-31 00:00"}},
		"largest values":    {schedule.Options{Cron: "59 23 31 12 *"}, "2026-11-21 12:00", []string{"2026-12-31 23:59"}},
		"names":             {schedule.Options{Cron: "0 0 1 JAN,jul MON-fri"}, "2026-12-30 00:00", []string{"2027-01-01 00:00", "2027-01-04 00:00"}},
		"either day field":  {schedule.Options{Cron: "0 0 13 * 5"}, "2026-11-12 01:00", []string{"2026-11-13 00:00", "2026-11-20 00:00", "2026-11-27 00:00", "2026-12-04 00:00", "2026-12-11 00:00", "2026-12-13 00:00"}},
		"a step in a list":  {schedule.Options{Cron: "5,*/20 * * * *"}, "2026-11-21 08:00", []string{"2026-11-21 08:05", "2026-11-21 08:20", "2026-11-21 08:40", "2026-11-21 09:00", "2026-11-21 09:05"}},
		"star with a step":  {schedule.Options{Cron: "0 0 */2 * 1"}, "2026-11-02 01:00", []string{"2026-11-09 00:00", "2026-11-23 00:00"}},
		"leap day far away": {schedule.Options{Cron: "0 0 29 2 *"}, "2096-03-01 00:00", []string{"2104-02-29 00:00"}},
		"@daily":            {schedule.Options{Cron: q("@daily")}, "2026-11-21 12:00", []string{"2026-11-22 00:00"}},
		"hourly":            {schedule.Options{Cron: q("hourly at :15")}, "2026-11-21 12:15", []string{"2026-11-21 13:15", "2026-11-21 14:15"}},
		"hourly, first":     {schedule.Options{Cron: "hourly at :00"}, "2026-11-21 12:15", []string{"2026-11-21 13:00"}},
		"hourly, last":      {schedule.Options{Cron: "hourly at :59"}, "2026-11-21 12:15", []string{"2026-11-21 12:59"}},
		"daily":             {schedule.Options{Cron: q("daily at 08:05")}, "2026-11-21 12:00", []string{"2026-11-22 08:05"}},
		"weekly":            {schedule.Options{Cron: q("weekly on mon,thu at 08:00")}, "2026-11-21 12:00", []string{"2026-11-23 08:00", "2026-11-26 08:00", "2026-11-30 08:00"}},
		"monthly":           {schedule.Options{Cron: "CRON_TZ=Asia/Tokyo monthly on 1,15 at 08:00"}, "2026-11-21 12:00", []string{"2026-11-30 23:00", "2026-12-14 23:00"}},
		"monthly, clamped":  {schedule.Options{Cron: q("monthly on 31 at 08:00")}, "2026-01-31 08:00", []string{"2026-02-28 08:00", "2026-03-31 08:00", "2026-04-30 08:00", "2026-05-31 08:00"}},
		"clamped once":      {schedule.Options{Cron: "monthly on 29,30,31 at 08:00"}, "2028-01-31 08:00", []string{"2028-02-29 08:00", "2028-03-29 08:00", "2028-03-30 08:00", "2028-03-31 08:00", "2028-04-29 08:00", "2028-04-30 08:00", "2028-05-29 08:00"}},
		"cron, not clamped": {schedule.Options{Cron: "0 8 31 * *"}, "2026-01-31 08:00", []string{"2026-03-31 08:00", "2026-05-31 08:00"}},
		"yearly":            {schedule.Options{Cron: "yearly on 12-24 at 18:00"}, "2026-12-24 18:00", []string{"2027-12-24 18:00"}},
		"yearly, clamped":   {schedule.Options{Cron: q("yearly on feb-29 at 18:00")}, "2026-12-24 18:00", []string{"2027-02-28 18:00", "2028-02-29 18:00", "2029-02-28 18:00"}},
		"every from epoch":  {schedule.Options{Every: q("6h")}, "2026-11-21 07:00", []string{"2026-11-21 12:00", "2026-11-21 18:00"}},
		"every from anchor": {schedule.Options{Every: "1d", Anchor: at("2026-11-01 09:10")}, "2026-11-21 07:00", []string{"2026-11-21 09:10", "2026-11-22 09:10"}},
		"before the anchor": {schedule.Options{Every: "10m", Anchor: at("2026-11-21 09:05")}, "2026-11-21 07:00", []string{"2026-11-21 07:05"}},
		"the longest":       {schedule.Options{Every: "3660d", Anchor: at("2026-11-21 00:00")}, "2026-11-21 00:00", []string{"2036-11-28 00:00"}},
		"part of a day":     {schedule.Options{Every: "0.7d", Anchor: at("2026-11-21 00:00")}, "2026-11-21 00:00", []string{"2026-11-21 16:48"}},
		"at":                {schedule.Options{At: q("2026-11-21T08:00:00+01:00")}, "2026-11-21 06:59:59", []string{"2026-11-21 07:00", ""}},
		"at, of its day":    {schedule.Options{At: "2026-11-21T08:00:00+01:00", Only: []string{"2026-11-21"}}, "2026-11-21 06:59:59", []string{"2026-11-21 07:00", ""}},
		"only some dates":   {schedule.Options{Cron: "0 8 * * *", Only: []string{"2026-12-24..2026-12-26"}}, "2026-11-21 12:00", []string{"2026-12-24 08:00", "2026-12-25 08:00", "2026-12-26 08:00", ""}},
		"a long exclusion":  {schedule.Options{Every: "1s", Exclude: []string{"2026-11-22..2999-12-31"}}, "2026-11-21 23:59:59", []string{"3000-01-01 00:00"}},
		"excluded dates": {schedule.Options{Cron: "0 8 * * *", Exclude: []string{"2026-12-25", "2026-12-27..2026-12-31"}}, "2026-12-24 00:00",
			[]string{"2026-12-24 08:00", "2026-12-26 08:00", "2027-01-01 08:00"}},
		// Berlin changes from 02:00 to 03:00 on 2026-03-29 and from 03:00 to 02:00 on 2026-10-25.
		"gap, fixed":    {schedule.Options{Cron: "30 2 * * *", Timezone: "Europe/Berlin"}, "2026-03-28 12:00", []string{"2026-03-29 01:00", "2026-03-30 00:30"}},
		"repeat, fixed": {schedule.Options{Cron: "30 2 * * *", Timezone: "Europe/Berlin"}, "2026-10-24 12:00", []string{"2026-10-25 00:30", "2026-10-26 01:30"}},
		"gap, real":     {schedule.Options{Cron: "0 * * * *", Timezone: "Europe/Berlin"}, "2026-03-29 00:00", []string{"2026-03-29 01:00", "2026-03-29 02:00"}},
		"repeat, real":  {schedule.Options{Cron: "*/30 * * * *", Timezone: "Europe/Berlin"}, "2026-10-24 23:50", []string{"2026-10-25 00:00", "2026-10-25 00:30", "2026-10-25 01:00", "2026-10-25 01:30"}},
		"seconds on a day of a change": {schedule.Options{Cron: "0,20,40 0 8 * * *", Timezone: "Europe/Berlin"}, "2026-03-29 05:59:59",
			[]string{"2026-03-29 06:00", "2026-03-29 06:00:20", "2026-03-29 06:00:40", "2026-03-30 06:00"}},
		"the day behind a change": {schedule.Options{Cron: "*/15 * * * 1", Timezone: "Europe/Berlin"}, "2026-03-29 03:00", []string{"2026-03-29 22:00", "2026-03-29 22:15"}},
		// Lord Howe shifts by half an hour.
		"half-hour gap": {schedule.Options{Cron: "15 2 * * *", Timezone: "Australia/Lord_Howe"}, "2026-10-03 00:00", []string{"2026-10-03 15:30", "2026-10-04 15:15"}},
		// Winamac went from UTC-6 to UTC-4 on 2007-03-11, from 02:00 to 04:00.
		"two-hour gap": {schedule.Options{Cron: "30 2 * * *", Timezone: "America/Indiana/Winamac"}, "2007-03-11 00:00", []string{"2007-03-11 08:00", "2007-03-12 06:30"}},
		// time.ZoneBounds is wrong on 31 December of leap years, a Monday in 2040.
		"end of a leap year":            {schedule.Options{Cron: "*/15 * * * *", Timezone: "Europe/Berlin"}, "2040-12-31 05:01", []string{"2040-12-31 05:15", "2040-12-31 05:30"}},
		"end of a leap year, some days": {schedule.Options{Cron: "*/15 * * * 2", Timezone: "Europe/Berlin"}, "2040-12-31 05:01", []string{"2040-12-31 23:00"}},
		// Apia skipped all of 2011-12-30.
		"skipped date": {schedule.Options{Cron: "0 9 * * *", Timezone: "Pacific/Apia"}, "2011-12-29 20:00", []string{"2011-12-30 19:00", "2011-12-31 19:00"}},
		// In Beirut, the gap begins at midnight: 00:00 becomes 01:00.
		"gap at midnight": {schedule.Options{Cron: "0 0 * * *", Timezone: "Asia/Beirut"}, "2026-03-28 12:00", []string{"2026-03-28 22:00", "2026-03-29 21:00"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, from := parse(t, c.options), at(c.after)
			for _, text := range c.want {
				got := s.Next(from)
				if !got.Equal(at(text)) {
					t.Fatalf("after %s: %s, want %s", from, got, text)
				}
				from = got
			}
		})
	}
}

// An anchor may have a fraction of a second, which its instants then have too.
func TestEveryFromAFractionOfASecond(t *testing.T) {
	half := func(text string) time.Time { return at(text).Add(500 * time.Millisecond) }
	s := parse(t, schedule.Options{Every: "10s", Anchor: half("2026-11-21 09:00")})
	for after, want := range map[time.Time]time.Time{
		at("2026-11-21 09:00:10"):   half("2026-11-21 09:00:10"),
		half("2026-11-21 09:00:10"): half("2026-11-21 09:00:20"),
		at("2026-11-21 09:00:11"):   half("2026-11-21 09:00:20"),
	} {
		if got := s.Next(after); !got.Equal(want) {
			t.Errorf("after %s: %s, want %s", after, got, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		o   schedule.Options
		say string
	}{
		{schedule.Options{Cron: "0 0 31 2 *"}, "never fires"},
		{schedule.Options{Cron: "0 0 L * *"}, "day-of-month"},
		{schedule.Options{Cron: "0 0 * * 5#2"}, "not supported"},
		{schedule.Options{Cron: "0 0 15W * *"}, "day-of-month"},
		{schedule.Options{Cron: "60 * * * *"}, `minute "60": "60" is not a number from 0 to 59`},
		{schedule.Options{Cron: "0 0 1 13 *"}, `"13" is neither a number from 1 to 12 nor one of jan feb`},
		{schedule.Options{Cron: "*/100 * * * *"}, "step"},
		{schedule.Options{Cron: "0 0 */31 * *"}, `the step "31" must be a number from 1 to 30`},
		{schedule.Options{Cron: "1,,2 * * * *"}, "minute"},
		{schedule.Options{Cron: "10-5 * * * *"}, "backwards"},
		{schedule.Options{Cron: "* * *"}, "3 fields"},
		{schedule.Options{Cron: "*/+5 * * * *"}, "step"},
		{schedule.Options{Cron: "0 22-6 * * *"}, "backwards"},
		{schedule.Options{Cron: "@reboot"}, "@hourly"},
		{schedule.Options{Cron: "daily"}, "the time is missing; in words a schedule is one of: hourly at :15"},
		{schedule.Options{Cron: "daily at 25:00"}, "no time of a day"},
		{schedule.Options{Cron: "daily on mon at 08:00"}, "takes no day"},
		{schedule.Options{Cron: "weekly at 08:00"}, "needs a day"},
		{schedule.Options{Cron: "weekly on * at 08:00"}, "no list of days"},
		{schedule.Options{Cron: "weekly on"}, "needs a day"},
		{schedule.Options{Cron: "hourly at 15"}, "no minute"},
		{schedule.Options{Cron: "hourly at 015"}, "no minute"},
		{schedule.Options{Cron: "hourly at :5"}, "no minute"},
		{schedule.Options{Cron: "hourly at :xx"}, "no minute"},
		{schedule.Options{Cron: "hourly at :60"}, "no minute"},
		{schedule.Options{Cron: "monthly on 32 at 08:00"}, "day-of-month"},
		{schedule.Options{Cron: "yearly on 24 at 08:00"}, "no month and day"},
		{schedule.Options{Cron: "yearly on 13-24 at 08:00"}, "month"},
		{schedule.Options{Cron: "@every 1s"}, "every:"},
		{schedule.Options{Cron: "TZ=0"}, "time zone"},
		{schedule.Options{Cron: "CRON_TZ=UTC"}, "time zone"},
		{schedule.Options{Cron: "TZ= 0 0 * * *"}, "TZ= needs a time zone"},
		{schedule.Options{Cron: "CRON_TZ=Nowhere 0 0 * * *"}, "Nowhere"},
		{schedule.Options{Cron: "0 0 * * *", Timezone: "Mars/Base"}, "IANA"},
		{schedule.Options{Cron: "0 0 * * *", Exclude: []string{"Christmas"}}, "exclude"},
		{schedule.Options{Cron: "0 0 * * *", Exclude: []string{"Christmas..2026-12-31"}}, "is neither a date"},
		{schedule.Options{Cron: "0 0 * * *", Exclude: []string{"2026-12-24..Christmas"}}, "is neither a date"},
		{schedule.Options{Cron: "0 0 * * *", Exclude: []string{"0001-01-01..9999-12-31"}}, "never fires"},
		{schedule.Options{At: "2027-01-01T08:00:00Z", Exclude: []string{"2027-01-01"}}, "never fires"},
		{schedule.Options{At: "9999-12-31T23:00:00-05:00"}, "9999"},
		{schedule.Options{At: "9999-12-31T23:00:00-01:00"}, "9999"},
		{schedule.Options{Every: "3661d"}, "at most ten years"},
		{schedule.Options{Every: "0s"}, "at least 1s"},
		{schedule.Options{Every: "-5m"}, "at least 1s"},
		{schedule.Options{Every: "500ms"}, "at least 1s"},
		{schedule.Options{Every: "soon"}, "length of time"},
		{schedule.Options{At: "tomorrow"}, "RFC 3339"},
		{schedule.Options{}, "exactly one"},
		{schedule.Options{Cron: "@daily", Every: "1h"}, "exactly one"},
	} {
		_, err := schedule.Parse(c.o)
		var e *schedule.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%+v: %v, want an *Error that says %q", c.o, err, c.say)
		}
	}
}

// JSON output cannot represent times after the year 9999. A single such instant would make a whole
// listing unreadable.
func TestNothingBehindTheYear9999(t *testing.T) {
	for _, o := range []schedule.Options{{Every: "1h"}, {Cron: "@daily"}, {Cron: "@hourly"}, {Cron: "0 9 * * *", Exclude: []string{"2030-01-01..9999-12-31"}}} {
		if next := parse(t, o).Next(time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)); !next.IsZero() {
			t.Errorf("%+v: %s", o, next)
		}
	}
	yearly := parse(t, schedule.Options{Cron: "0 0 1 1 *"})
	if next, _ := yearly.NextWithExcluded(at("9999-06-01 00:00")); !next.IsZero() {
		t.Errorf("the first instant of the year after: %s", next)
	}
}

var zones = []string{"UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Beirut", "America/Havana",
	"Africa/Casablanca", "Asia/Kathmandu", "America/Asuncion", "Pacific/Chatham", "Antarctica/Troll", "America/Nuuk", "Africa/Cairo", "Asia/Gaza", "America/Indiana/Winamac"}

// A year of a daily job takes milliseconds. Listings and simulations iterate over years of many
// schedules.
func TestYearOfADailyJob(t *testing.T) {
	s := parse(t, schedule.Options{Cron: "30 2 * * *", Timezone: "Europe/Berlin"})
	for year, want := range map[int]int{2026: 365, 2028: 366} {
		fires, begin := 0, time.Now()
		for n := s.Next(time.Date(year, 1, 1, 0, 0, 0, 0, s.Zone())); n.In(s.Zone()).Year() == year; n = s.Next(n) {
			fires++
		}

		if fires != want {
			t.Errorf("%d: %d fires, want %d", year, fires, want)
		}
		t.Logf("%d: %d fires in %s", year, fires, time.Since(begin))
	}
}

func itoa(n int) string {
	return strings.TrimSpace(strings.Join([]string{string(rune('0' + n/10)), string(rune('0' + n%10))}, ""))
}

// Next always goes forward, and every time before an instant leads to it.
func TestNextIsTheFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := parse(t, schedule.Options{
			Cron: spec{
				minute: drawField(t, "minute", 0, 59, "star", "step", "range", "list"), hour: drawField(t, "hour", 0, 23, "star", "step", "range", "list"),
				dom: drawField(t, "dom", 1, 28, "star", "range"), month: drawField(t, "month", 1, 12, "star", "range"), dow: drawField(t, "dow", 0, 6, "star", "list"),
			}.String(),
			Timezone: rapid.SampledFrom(zones).Draw(t, "zone"),
			Exclude:  rapid.SampledFrom([][]string{nil, {"2026-03-01..2026-03-29"}, {"2026-02-28", "2026-12-24..2027-01-06"}}).Draw(t, "exclude"),
		})

		from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(rapid.IntRange(0, 500_000).Draw(t, "start")) * time.Minute)
		next := s.Next(from)
		if !next.After(from) {
			t.Fatalf("%s: %s is not after %s", s, next, from)
		}

		between := from.Add(time.Duration(rapid.Int64Range(0, int64(next.Sub(from))-1).Draw(t, "between")))
		if got := s.Next(between); !got.Equal(next) {
			t.Fatalf("%s: after %s comes %s, after %s comes %s", s, from, next, between, got)
		}
	})
}

func TestJitter(t *testing.T) {
	s := parse(t, schedule.Options{Cron: "* * * * * *", Jitter: time.Hour, Job: "a"})
	other := parse(t, schedule.Options{Cron: "* * * * * *", Jitter: time.Hour, Job: "b"})
	n, differs := at("2026-11-21 08:00"), false
	for range 50 {
		n = s.Next(n)
		actual := s.Actual(n)
		if actual.Before(n) || !actual.Before(s.Next(n)) {
			t.Errorf("%s moved to %s", n, actual)
		}
		if !actual.Equal(s.Actual(n)) {
			t.Error("jitter is not the same each time")
		}
		differs = differs || !actual.Equal(other.Actual(n))
	}
	if !differs {
		t.Error("two jobs have the same jitter")
	}
}

// An occurrence never starts before its nominal instant, regardless of the grid's anchor.
func TestJitterOfAFineAnchor(t *testing.T) {
	s := parse(t, schedule.Options{Every: "1s", Jitter: time.Microsecond, Anchor: at("2026-11-21 08:00").Add(1234567)})
	n := at("2026-11-21 08:00")
	for range 50 {
		if n = s.Next(n); s.Actual(n).Before(n) {
			t.Fatalf("%s starts at %s", n, s.Actual(n))
		}
	}
}

func TestDue(t *testing.T) {
	hourly, now := parse(t, schedule.Options{Cron: "0 * * * *"}), at("2026-11-21 08:00:02")
	decisions := func(due []schedule.Instant) string {
		var out []string
		for _, d := range due {
			word := "missed"
			if d.Run {
				word = "run"
			}
			out = append(out, d.Nominal.Format("15")+word)
		}

		return strings.Join(out, " ")
	}

	for name, c := range map[string]struct {
		watermark string
		now       time.Time
		policy    schedule.Policy
		want      string
	}{
		"in time":               {"2026-11-21 07:30", now, schedule.Policy{OnMiss: domain.MissSkip}, "08run"},
		"nothing due":           {"2026-11-21 08:00", now, schedule.Policy{}, ""},
		"slept, the last late":  {"2026-11-21 05:30", now.Add(time.Minute), schedule.Policy{OnMiss: domain.MissSkip}, "06missed 07missed 08missed"},
		"slept, woke in time":   {"2026-11-21 05:30", now, schedule.Policy{OnMiss: domain.MissSkip}, "06missed 07missed 08run"},
		"run once":              {"2026-11-21 05:30", now.Add(time.Minute), schedule.Policy{}, "06missed 07missed 08run"},
		"catch up":              {"2026-11-21 05:30", now.Add(time.Minute), schedule.Policy{OnMiss: domain.MissCatchup}, "06run 07run 08run"},
		"catch up, bounded":     {"2026-11-21 03:30", now.Add(time.Minute), schedule.Policy{OnMiss: domain.MissCatchup, MaxCatchup: 2}, "04missed 05missed 06missed 07run 08run"},
		"catch up, only so old": {"2026-11-21 03:30", now.Add(time.Minute), schedule.Policy{OnMiss: domain.MissCatchup, CatchupWindow: 90 * time.Minute}, "04missed 05missed 06missed 07run 08run"},
		"older than the window": {"2026-11-20 06:30", at("2026-11-21 06:59"), schedule.Policy{CatchupWindow: 30 * time.Minute}, strings.TrimSpace(hours("2026-11-20 07:00", 24))},
		"the clock went back":   {"2026-11-21 09:30", now, schedule.Policy{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			due, _ := hourly.Due(at(c.watermark), schedule.DueOptions{Now: c.now}, c.policy)
			if got := decisions(due); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}

			for _, d := range due {
				if !d.Run && d.Reason == "" {
					t.Error("an instant was missed without a reason")
				}
			}
		})
	}
}

// hours formats n missed hourly instants.
func hours(from string, n int) string {
	var out strings.Builder
	for i := range n {
		out.WriteString(at(from).Add(time.Duration(i)*time.Hour).Format(" 15") + "missed")
	}
	return out.String()
}

// Limits of lateness, with their reasons.
func TestDueBounds(t *testing.T) {
	hourly := parse(t, schedule.Options{Cron: "0 * * * *"})
	for name, c := range map[string]struct {
		late   time.Duration
		policy schedule.Policy
		run    bool
		reason string
	}{
		"as late as in time":      {30 * time.Second, schedule.Policy{OnMiss: domain.MissSkip}, true, ""},
		"later":                   {30*time.Second + time.Millisecond, schedule.Policy{OnMiss: domain.MissSkip}, false, "missed by 30.001s; on_miss is skip"},
		"seconds in full":         {90*time.Second + 400*time.Millisecond, schedule.Policy{}, true, "caught up 1m30s late; on_miss is run_once"},
		"as late as the window":   {40 * time.Minute, schedule.Policy{CatchupWindow: 40 * time.Minute}, true, "caught up 40m0s late; on_miss is run_once"},
		"later than the window":   {40*time.Minute + time.Second, schedule.Policy{CatchupWindow: 40 * time.Minute}, false, "missed by 40m1s, more than the catch-up window of 40m0s"},
		"as late as the usual 24": {50 * time.Minute, schedule.Policy{}, true, "caught up 50m0s late; on_miss is run_once"},
	} {
		t.Run(name, func(t *testing.T) {
			due, _ := hourly.Due(at("2026-11-21 07:30"), schedule.DueOptions{Now: at("2026-11-21 08:00").Add(c.late)}, c.policy)
			if len(due) != 1 || due[0].Run != c.run || due[0].Reason != c.reason {
				t.Errorf("%+v, want it to run: %t, %q", due, c.run, c.reason)
			}
		})
	}
}

// Catchup is true only if several runs are caught up.
func TestDueSaysWhatIsCaughtUp(t *testing.T) {
	hourly, now := parse(t, schedule.Options{Cron: "0 * * * *"}), at("2026-11-21 08:30")
	for name, c := range map[string]struct {
		watermark string
		policy    schedule.Policy
		want      []bool
	}{
		"several":         {"2026-11-21 05:30", schedule.Policy{OnMiss: domain.MissCatchup}, []bool{true, true, true}},
		"some are missed": {"2026-11-21 05:30", schedule.Policy{OnMiss: domain.MissCatchup, MaxCatchup: 2}, []bool{false, true, true}},
		"one":             {"2026-11-21 07:30", schedule.Policy{OnMiss: domain.MissCatchup}, []bool{false}},
		"the last alone":  {"2026-11-21 05:30", schedule.Policy{}, []bool{false, false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []bool
			due, _ := hourly.Due(at(c.watermark), schedule.DueOptions{Now: now}, c.policy)
			for _, d := range due {
				got = append(got, d.Catchup)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}

	// More instants than have individual rows.
	minutes := parse(t, schedule.Options{Every: "1m"})
	ran := 0
	due, _ := minutes.Due(now.Add(-3000*time.Minute), schedule.DueOptions{Now: now}, schedule.Policy{OnMiss: domain.MissCatchup, CatchupWindow: 100 * time.Hour, MaxCatchup: 1500})
	for _, d := range due {
		if d.Run {
			ran++
		}
	}
	if ran != 1500 {
		t.Errorf("%d are caught up, want 1500", ran)
	}
}

func TestDueOfOneInstant(t *testing.T) {
	once := parse(t, schedule.Options{At: "2026-11-21T08:00:00Z"})
	if due, _ := once.Due(at("2026-11-21 07:00"), schedule.DueOptions{Now: at("2026-11-21 08:00")}, schedule.Policy{}); len(due) != 1 || !due[0].Run {
		t.Errorf("%+v", due)
	}
}

// An instant that is still delayed by jitter is not late.
func TestDueBeforeJitterEnds(t *testing.T) {
	s := parse(t, schedule.Options{Cron: "0 * * * *", Jitter: time.Hour, Job: "a"})
	nominal := at("2026-11-21 08:00")
	if held := s.Actual(nominal).Sub(nominal); held < 2*time.Minute {
		t.Fatalf("a jitter of %s shows nothing", held)
	}

	due, _ := s.Due(nominal.Add(-time.Minute), schedule.DueOptions{Now: s.Actual(nominal).Add(-time.Second)}, schedule.Policy{OnMiss: domain.MissSkip})
	if len(due) != 1 || !due[0].Run {
		t.Errorf("before its actual instant: %+v", due)
	}

	due, _ = s.Due(nominal.Add(-time.Minute), schedule.DueOptions{Now: s.Actual(nominal).Add(time.Minute)}, schedule.Policy{OnMiss: domain.MissSkip})
	if len(due) != 1 || due[0].Run {
		t.Errorf("a minute behind it: %+v", due)
	}
}

// A year of two instants per day, one second apart, can be listed.
func TestDueOfAnUnevenSchedule(t *testing.T) {
	s := parse(t, schedule.Options{Cron: "0,1 0 8 * * *"})
	due, _ := s.Due(at("2025-11-21 08:30"), schedule.DueOptions{Now: at("2026-11-21 08:30")}, schedule.Policy{OnMiss: domain.MissCatchup, CatchupWindow: 366 * 24 * time.Hour, MaxCatchup: 800})
	if len(due) != 730 || !due[0].Through.IsZero() || !due[0].Run {
		t.Errorf("%d instants, the first %+v", len(due), due[0])
	}
}

// With a clock that jumps in both directions, each instant is decided once, and a jump starts at
// most one run.
func TestDueUnderClockJumps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := parse(t, schedule.Options{Cron: rapid.SampledFrom([]string{"*/5 * * * *", "0 * * * *", "30 2 * * *", "* * * * * *"}).Draw(t, "cron"), Timezone: "Europe/Berlin"})
		now := at("2026-10-24 12:00")
		watermark, seen := now, map[time.Time]bool{}
		for range 100 {
			now = now.Add(time.Duration(rapid.IntRange(-3*3600, 4*3600).Draw(t, "jump")) * time.Second)
			due, _ := s.Due(watermark, schedule.DueOptions{Now: now}, schedule.Policy{})
			runs := 0
			for _, d := range due {
				if seen[d.Nominal] || d.Nominal.After(now) || !d.Nominal.After(watermark) {
					t.Fatalf("at %s: %+v was decided before, or too early", now, d)
				}
				seen[d.Nominal] = true
				if d.Run {
					runs++
				}
			}

			if runs > 1 {
				t.Fatalf("at %s: %d runs at once", now, runs)
			}

			if len(due) > 0 {
				watermark = now
			}
		}
	})
}

// After a year without a daemon, the last instants of a job that fires every second have individual
// rows. One row represents all earlier instants.
func TestDueAfterAVeryLongOutage(t *testing.T) {
	from, to := at("2025-11-21 08:00"), at("2026-11-21 08:00")
	for name, o := range map[string]schedule.Options{"cron": {Cron: "* * * * * *"}, "every": {Every: "1s"}} {
		due, _ := parse(t, o).Due(from, schedule.DueOptions{Now: to}, schedule.Policy{})
		if len(due) != 1001 {
			t.Fatalf("%s: %d instants", name, len(due))
		}

		first, last := due[0], due[len(due)-1]
		if !last.Nominal.Equal(to) || !last.Run {
			t.Errorf("%s: the last is %+v", name, last)
		}
		if !first.Nominal.Equal(from.Add(time.Second)) || !first.Through.Equal(due[1].Nominal.Add(-time.Second)) || first.Run || first.Reason == "" {
			t.Errorf("%s: the first, which stands for the rest, is %+v", name, first)
		}
		if want := 365*24*3600 - 1000; name == "every" && first.Count != want {
			t.Errorf("%s: it stands for %d instants, want %d", name, first.Count, want)
		}

		if !slices.IsSortedFunc(due, func(a, b schedule.Instant) int { return a.Nominal.Compare(b.Nominal) }) {
			t.Errorf("%s: not oldest first", name)
		}
	}

	day, _ := parse(t, schedule.Options{Every: "1m"}).Due(from, schedule.DueOptions{Now: from.Add(24 * time.Hour)}, schedule.Policy{})
	if total := day[0].Count + len(day) - 1; total != 24*60 {
		t.Errorf("a day of minutes is %d instants", total)
	}
}

// A paused instant is skipped and not caught up. It does not count as a newer instant.
func TestDueWithPauses(t *testing.T) {
	s := parse(t, schedule.Options{Cron: "0 * * * *"})
	m := schedule.DueOptions{Now: at("2026-11-21 12:30"),
		Paused: func(n time.Time) string {
			if h := n.Hour(); h == 8 || h >= 11 {
				return "paused: holidays"
			}
			return ""
		},
		LateCause: func(time.Time) string { return "no daemon ran" },
	}

	for policy, want := range map[domain.OnMiss]string{
		domain.MissSkip:    "7missed 8skipped 9missed 10missed 11skipped 12skipped",
		domain.MissRunOnce: "7missed 8skipped 9missed 10run 11skipped 12skipped",
		domain.MissCatchup: "7run 8skipped 9run 10run 11skipped 12skipped",
	} {
		var got []string
		due, _ := s.Due(at("2026-11-21 06:00"), m, schedule.Policy{OnMiss: policy})
		for _, d := range due {
			word := "missed"
			switch {
			case d.Run:
				word = "run"
			case d.Skipped:
				word = "skipped"
			}

			if reason := "no daemon ran"; !d.Skipped && !strings.Contains(d.Reason, reason) {
				t.Errorf("%s: the reason %q does not tell the cause", policy, d.Reason)
			}

			got = append(got, fmt.Sprint(d.Nominal.Hour(), word))
		}
		if text := strings.Join(got, " "); strings.ReplaceAll(text, " ", "") != strings.ReplaceAll(want, " ", "") {
			t.Errorf("%s: %s, want %s", policy, text, want)
		}
	}
}

func TestDescribe(t *testing.T) {
	for cron, want := range map[string]string{
		"0 8 * * 1-5":     "every weekday at 08:00 (Europe/Berlin)",
		"*/15 * * * *":    "every 15 minutes",
		"* * * * * *":     "every second",
		"0 * * * *":       "every hour at minute 0",
		"0 0 1 1,7 *":     "at 00:00 on day 1 in January and July (Europe/Berlin)",
		"30 6,18 * * 0":   "every Sunday at 06:30 and 18:30 (Europe/Berlin)",
		"0 8 1-31 * 1":    "every day at 08:00 (Europe/Berlin)",
		"0 8 * * 1,3":     "at 08:00 on Monday and Wednesday (Europe/Berlin)",
		"*/15 * * * 1-5":  "every 15 minutes on Monday to Friday (Europe/Berlin)",
		"*/15 * 13 * 0-6": "every 15 minutes",
		"0 0 13 * 5":      "at 00:00 on day 13 and on Friday (Europe/Berlin)",
		"5 9-17 * * *":    "every day at minute 5 of the hours 9 to 17 (Europe/Berlin)",
		"15 30 8 * * *":   "every day at 08:30:15 (Europe/Berlin)",
		"0,30 8-18 * * *": "every day at the minutes 0 and 30 of the hours 8 to 18 (Europe/Berlin)",
		"*/10 9 * * 1-5":  "every weekday at the minutes 0, 10, 20, 30, 40 and 50 of the hour 9 (Europe/Berlin)",
		"* 9-17 * * *":    "every minute of the hours 9 to 17 (Europe/Berlin)",
		"7,9 * * * *":     "every hour at minutes 7 and 9",
		"*/30 * * * *":    "every 30 minutes",
		"0 */6 * * *":     "every day at 00:00, 06:00, 12:00 and 18:00 (Europe/Berlin)",
		"0 8 * * 1-3":     "at 08:00 on Monday to Wednesday (Europe/Berlin)",

		"monthly on 31 at 08:00": "at 08:00 on day 31 or the last of the month (Europe/Berlin)",
		"monthly on 15 at 08:00": "at 08:00 on day 15 (Europe/Berlin)",
		"monthly on 28 at 08:00": "at 08:00 on day 28 (Europe/Berlin)",
		"monthly on 29 at 08:00": "at 08:00 on day 29 or the last of the month (Europe/Berlin)",
		"weekly on mon at 08:00": "every Monday at 08:00 (Europe/Berlin)",
		// Seconds are always shown.
		"*/20 * * * * *":    "every 20 seconds",
		"30 * * * * *":      "every minute, at second 30",
		"0,7 */15 * * * *":  "every 15 minutes, at seconds 0 and 7",
		"5 0 * * * *":       "every hour at minute 0, at second 5",
		"* 30 8 * * *":      "every day at minute 30 of the hour 8, each second (Europe/Berlin)",
		"*/30 * 9-17 * * *": "every minute of the hours 9 to 17, at seconds 0 and 30 (Europe/Berlin)",
		"5 0,30 8-18 * * *": "every day at the minutes 0 and 30 of the hours 8 to 18, at second 5 (Europe/Berlin)",
	} {
		if got := parse(t, schedule.Options{Cron: cron, Timezone: "Europe/Berlin"}).Describe(); got != want {
			t.Errorf("%s: %q, want %q", cron, got, want)
		}
	}
	for every, want := range map[string]string{"90m": "every 1h30m", "24h": "every 1d", "36h": "every 36h", "48h": "every 2d"} {
		if got := parse(t, schedule.Options{Every: every}).Describe(); got != want {
			t.Errorf("%s: %q, want %q", every, got, want)
		}
	}
}

// Schedules with different instants have different descriptions.
func TestDescribeTellsSchedulesApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranges := [][2]int{{0, 59}, {0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}}
		draw := func(i int) field {
			return drawField(t, itoa(i), ranges[i][0], ranges[i][1], "star", "star", "step", "range", "list")
		}
		var one, other [6]field
		for i := range one {
			one[i] = draw(i)
			other[i] = one[i]
		}

		i := rapid.IntRange(0, 5).Draw(t, "changed")
		other[i] = draw(i)
		words := func(f [6]field) string {
			var parts []string
			for i := range f {
				parts = append(parts, f[i].text)
			}

			s, err := schedule.Parse(schedule.Options{Cron: strings.Join(parts, " ")})
			if err != nil {
				t.Skip("never fires")
			}
			return s.Describe()
		}

		a, b := spec{one[1], one[2], one[3], one[4], one[5]}, spec{other[1], other[2], other[3], other[4], other[5]}
		same := slices.Equal(slices.Sorted(slices.Values(one[0].values)), slices.Sorted(slices.Values(other[0].values)))
		for at := at("2026-01-01 00:00"); at.Year() < 2030 && same; at = at.Add(61 * time.Minute) {
			same = a.on(at) == b.on(at)
		}
		if !same && words(one) == words(other) {
			t.Fatalf("%s and %s, the seconds %v and %v, are both %q", a, b, one[0].values, other[0].values, words(one))
		}
	})
}

func TestHash(t *testing.T) {
	a, b := parse(t, schedule.Options{Cron: "0 8 * * *"}), parse(t, schedule.Options{Cron: "0 9 * * *"})
	if a.Hash() == b.Hash() || a.Hash() != parse(t, schedule.Options{Cron: "0 8 * * *", Job: "other"}).Hash() {
		t.Error("the hash does not follow the instants")
	}

	// All of them have different instants.
	seen := map[string]string{}
	for _, o := range []schedule.Options{
		{Window: "02:00-05:00"}, {Window: "02:00-06:00"}, {Window: "02:00-05:00", Days: "1-5"},
		{Cron: "0 8 * * *", Only: []string{"2026-12-24"}}, {Cron: "0 8 * * *", Only: []string{"2026-12-25"}}, {Cron: "0 8 * * *", Exclude: []string{"2026-12-25"}},
	} {
		hash, text := parse(t, o).Hash(), fmt.Sprintf("%+v", o)
		if other := seen[hash]; other != "" {
			t.Errorf("%s has the hash of %s", text, other)
		}
		seen[hash] = text
	}
}
