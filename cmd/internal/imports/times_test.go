package imports_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"pgregory.net/rapid"

	"rouse/cmd/internal/config"
	"rouse/cmd/internal/imports"
)

// carried converts one file and returns the resulting configuration.
func carried(t testing.TB, dir, format string, files ...imports.File) (*config.Config, *imports.Document, string) {
	t.Helper()
	d, err := read(t, format, files)
	if err != nil {
		t.Fatal(err)
	}
	text, err := d.Settle(check(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := readText(dir, filepath.Join(dir, "home"), text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return cfg, d, string(text)
}

// fires returns the scheduled times of the first job within a time span.
func fires(t failing, cfg *config.Config, from, to time.Time) (out []time.Time) {
	schedules, err := cfg.Schedules(&cfg.Jobs[0])
	if err != nil || len(schedules) != 1 {
		t.Fatalf("%d schedules, %v", len(schedules), err)
	}
	for at := schedules[0].Next(from.Add(-time.Second)); !at.IsZero() && at.Before(to); at = schedules[0].Next(at) {
		out = append(out, at.UTC())
	}
	return out
}

// A converted crontab line fires as crontab(5) describes, for every minute of a year. The test
// contains a small independent implementation of the manual. It uses UTC, which has no clock
// changes; the tests of package schedule cover those.
func TestCrontabTimes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		field := func(name string, low, high int) (text string, set []bool, star bool) {
			set = make([]bool, high+1)
			var parts []string
			for range rapid.IntRange(1, 2).Draw(t, name+" items") {
				a := rapid.IntRange(low, high).Draw(t, name)
				b := rapid.IntRange(a, high).Draw(t, name+" to")
				step := rapid.IntRange(1, high-low).Draw(t, name+" step")
				switch rapid.IntRange(0, 4).Draw(t, name+" form") {
				case 0:
					parts, a, b, step = append(parts, "*"), low, high, 1
				case 1:
					parts, a, b = append(parts, "*/"+itoa(step)), low, high
				case 2:
					parts, b, step = append(parts, itoa(a)), a, 1
				case 3:
					parts, step = append(parts, itoa(a)+"-"+itoa(b)), 1
				default:
					parts = append(parts, itoa(a)+"-"+itoa(b)+"/"+itoa(step))
				}
				for n := a; n <= b; n += step {
					set[n] = true
				}
			}
			return strings.Join(parts, ","), set, parts[0][0] == '*'
		}

		minute, minutes, _ := field("minute", 0, 59)
		hour, hours, _ := field("hour", 0, 23)
		dom, doms, anyDOM := field("day", 1, 31)
		month, months, _ := field("month", 1, 12)
		dow, dows, anyDOW := field("weekday", 0, 6)

		var want []time.Time
		for at := from; at.Year() == 2027; at = at.Add(time.Minute) {
			day, week := doms[at.Day()], dows[at.Weekday()]
			matches := day && week
			if !anyDOM && !anyDOW {
				matches = day || week
			}
			if minutes[at.Minute()] && hours[at.Hour()] && months[at.Month()] && matches {
				want = append(want, at)
			}
		}

		line := strings.Join([]string{minute, hour, dom, month, dow, "/usr/bin/true"}, " ")
		cfg, d, text := carriedIn(t, dir, "CRON_TZ=UTC\n"+line+"\n")
		if len(want) == 0 {
			if len(d.Jobs()) == 0 { // for example 31 February
				return
			}
		} else if len(cfg.Jobs) != 1 {
			t.Fatalf("%s was not carried over:\n%s", line, text)
		}
		if got := fires(t, cfg, from, from.AddDate(1, 0, 0)); !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Fatalf("%s: %d times, crontab(5) has %d", line, len(got), len(want))
		}
	})
}

// Typical crontab lines fire at the same times as in robfig/cron, over a year without clock
// changes.
func TestCrontabTimesOfRobfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	for line, theirs := range map[string]string{
		"*/5 * * * *": "", "0 9-17/2 * * mon-fri": "", "30 2 1,15 * *": "", "0 0 * jan,jul SUN": "", "15 4 * * 7": "15 4 * * 0",
		"@daily": "", "@weekly": "", "@monthly": "", "@yearly": "", "@annually": "@yearly", "@midnight": "@daily", "@hourly": "",
		"0 12 13 * fri": "", "08 09 * * *": "8 9 * * *", "*/90 * * * *": "0 * * * *", "@every_minute": "* * * * *",
	} {
		if theirs == "" {
			theirs = line
		}
		reference, err := cron.ParseStandard(theirs)
		if err != nil {
			t.Fatal(err)
		}
		var want []time.Time
		for at := reference.Next(from.Add(-time.Second)); at.Year() == 2027; at = reference.Next(at) {
			want = append(want, at)
		}
		cfg, _, text := carried(t, dir, "crontab", imports.File{Name: "c", Text: "CRON_TZ=UTC\n" + line + " /usr/bin/true\n"})
		if len(cfg.Jobs) != 1 {
			t.Fatalf("%s:\n%s", line, text)
		}
		if got := fires(t, cfg, from, from.AddDate(1, 0, 0)); !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Errorf("%s: %d times, robfig has %d", line, len(got), len(want))
		}
	}
}

// OnCalendar expressions fire at the times that systemd-analyze calendar prints.
func TestCalendarTimes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC) // a Friday
	for expression, want := range map[string]string{
		"Mon..Fri *-*-* 08:00 UTC":           "2027-01-01T08:00:00Z 2027-01-04T08:00:00Z 2027-01-05T08:00:00Z",
		"daily UTC":                          "2027-01-01T00:00:00Z 2027-01-02T00:00:00Z",
		"weekly UTC":                         "2027-01-04T00:00:00Z 2027-01-11T00:00:00Z",
		"quarterly UTC":                      "2027-01-01T00:00:00Z 2027-04-01T00:00:00Z",
		"*:0/15 UTC":                         "2027-01-01T00:00:00Z 2027-01-01T00:15:00Z 2027-01-01T00:30:00Z",
		"*-*-* *:*:0/20 UTC":                 "2027-01-01T00:00:00Z 2027-01-01T00:00:20Z 2027-01-01T00:00:40Z",
		"Sat..Mon 06:30 Europe/Berlin":       "2027-01-02T05:30:00Z 2027-01-03T05:30:00Z 2027-01-04T05:30:00Z",
		"*-02-29 12:00 UTC":                  "2028-02-29T12:00:00Z",
		"Fri,Mon *-*-* 00..06/3:00:00 UTC":   "2027-01-01T00:00:00Z 2027-01-01T03:00:00Z 2027-01-01T06:00:00Z 2027-01-04T00:00:00Z",
		"2027-05-06 07:08:09 UTC":            "2027-05-06T07:08:09Z",
		"Thu, Fri 10:00 UTC":                 "2027-01-01T10:00:00Z 2027-01-07T10:00:00Z",
		"*-*-1,15 10..11:30 America/Caracas": "2027-01-01T14:30:00Z 2027-01-01T15:30:00Z 2027-01-15T14:30:00Z",
	} {
		cfg, _, text := carried(t, dir, "systemd",
			imports.File{Name: "a.timer", Text: "[Timer]\nOnCalendar=" + expression + "\n"}, imports.File{Name: "a.service", Text: "[Service]\nExecStart=/usr/bin/true\n"})
		if len(cfg.Jobs) != 1 || len(cfg.Jobs[0].When) > 0 {
			t.Fatalf("%s:\n%s", expression, text)
		}
		got := fires(t, cfg, from, from.AddDate(2, 0, 0))
		for i, one := range strings.Fields(want) {
			if i >= len(got) || got[i].Format(time.RFC3339) != one {
				t.Errorf("%s: %v…, wanted %s", expression, got[:min(len(got), 4)], want)
				break
			}
		}
	}

	// Parts that a cron line cannot express become conditions or remarks.
	for expression, want := range map[string]string{
		"Mon *-*-01..07 09:00":      "Scheduled.Local().Weekday().String() in ['Monday']",
		"2027..2028-*-* 09:00 UTC":  `Scheduled.In(timezone(\"UTC\")).Year() in 2027..2028`,
		"*-*~01 09:00":              "counted from the end of a month",
		"Blursday 09:00":            "is no calendar expression",
		"2027-05-06 07:08:09":       "it is one moment, 2027-05-06 07:08:09, in the zone of its machine",
		"*-*-* 25:00":               "is no whole number from 0 to 23",
		"Mon *-*-* 09:00 Mars/City": "not carried over",
	} {
		d, _ := read(t, "systemd", []imports.File{{Name: "a.timer", Text: "[Timer]\nOnCalendar=" + expression + "\n"}, {Name: "a.service", Text: "[Service]\nExecStart=/usr/bin/true\n"}})
		text, err := d.Settle(check(t, dir))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v\n%s", expression, err, text)
		}
	}
}
