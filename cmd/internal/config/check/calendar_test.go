package check_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/config/configtest"
	"rouse/scheduler/schedule"
)

const teamFile = "BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:Off\nDTSTART;VALUE=DATE:20261224\nRRULE:FREQ=YEARLY\nEND:VEVENT\nEND:VCALENDAR\n"

// TestCalendars checks that mistakes in calendars, windows, exclude and only are reported at their
// position.
func TestCalendars(t *testing.T) {
	const calendars = "{name: team, file: team.ics}, {name: ops, url: https://example.com/ops.ics}, {name: past, file: past.ics}"
	for given, say := range map[string]string{
		`{name: de, holidays: DE-BY} | schedule: "0 8 * * *", exclude: [de, team, 2026-11-30], only: [ops, 2026-01-01..2026-12-31]`: "",
		`{name: in, url: "http://10.0.0.1/x.ics", private_network: true, refresh: 5m} | every: 1h, exclude: in`:                     "",
		`{name: de, holidays: DE} | window: {from: 02:00, to: 05:00, days: mon-fri}, exclude: de`:                                   "",
		`{name: de, holidays: DE-XX} | every: 1h`:                                            `calendars[0].holidays: no holidays are known of "DE-XX"`,
		`{name: c, file: gone.ics} | every: 1h`:                                              "calendars[0].file: there is no file",
		`{name: c, file: page.html} | every: 1h`:                                             "page.html: it is no iCalendar file",
		`{name: c, url: "http://example.com/x.ics"} | every: 1h`:                             "calendars[0].url: must be an address like https://",
		`{name: c, url: "nothing"} | every: 1h`:                                              "calendars[0].url: must be an address like https://",
		`{name: c, url: "https://example.com/x.ics", refresh: 1m} | every: 1h`:               "calendars[0].refresh: is at least 5m",
		`{name: c, holidays: DE, refresh: 1h} | every: 1h`:                                   "calendars[0].refresh: goes with url",
		`{name: c} | every: 1h`:                                                              "calendars[0]: give exactly one of holidays, file and url",
		`{name: c, holidays: DE, file: team.ics} | every: 1h`:                                "calendars[0].file: give exactly one of holidays, file and url, not holidays and file",
		`{name: team, holidays: DE} | every: 1h`:                                             `the name "team" is taken`,
		`{name: c, holidays: DE} | every: 1h, exclude: [tem]`:                                `jobs[0].exclude[0]: "tem" is neither a date like 2026-12-25, a range like 2026-12-24..2026-12-31, nor the name of one of the calendars; did you mean "team"?`,
		`{name: c, holidays: DE} | every: 1h, only: [2026-13-01]`:                            `jobs[0].only[0]: "2026-13-01" is neither a date`,
		`{name: c, holidays: DE} | schedule: "0 8 1 1 *", exclude: [0001-01-01..9999-12-31]`: "jobs[0].exclude",
		`{name: c, holidays: DE} | schedule: "0 8 1 1 *", only: [2026-02-01]`:                `jobs[0].only: "2026-02-01" leaves no instant`,
		`{name: c, holidays: DE} | window: {from: 2, to: 05:00}`:                             `jobs[0].window: "2-05:00" is not two times of day`,
		`{name: c, holidays: DE} | window: {from: 1:00, to: 1:00}`:                           "opens and closes at the same time",
		`{name: c, holidays: DE} | window: {from: 1:00, to: 2:00, days: someday}`:            `jobs[0].window: "someday" are not days`,
		`{name: c, holidays: DE} | window: {from: 1:00}`:                                     `jobs[0].window: the key "to" is missing`,
	} {
		calendar, job, _ := strings.Cut(given, " | ")
		path := configtest.Write(t, "rouse.yaml", fmt.Sprintf("agents: [{name: a}]\ncalendars: [%s, %s]\njobs: [{name: j, agent: a, prompt: x, %s}]\n", calendar, calendars, job),
			"team.ics", teamFile, "past.ics", strings.Replace(teamFile, "\nRRULE:FREQ=YEARLY", "", 1), "page.html", "<html>")
		cfg, err := configtest.Load(path, nil)
		switch {
		case say == "" && err != nil:
			t.Errorf("%s: %v", given, err)
		case say != "" && (err == nil || !strings.Contains(err.Error(), say)):
			t.Errorf("%s: %v, want %s", given, err, say)
		case say == "":
			if s, err := cfg.Schedules(&cfg.Jobs[0]); err != nil || len(s) != 1 {
				t.Errorf("%s: %v %v", given, s, err)
			}
		}
	}
}

// TestCalendarsOfJobs checks that a calendar file applies once it is read, that a calendar with a
// URL is filled later, and that a file that an agent can write is refused.
func TestCalendarsOfJobs(t *testing.T) {
	text := "timezone: Europe/Berlin\nagents: [{name: a, workdir: ./work}]\ncalendars: [{name: team, file: team.ics}, {name: ops, url: https://example.com/ops.ics}]\n" +
		"jobs: [{name: j, agent: a, prompt: x, schedule: \"0 8 * * *\", exclude: [team], only: [ops]}]\n"
	cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", text, "team.ics", teamFile), nil)
	if err != nil {
		t.Fatal(err)
	}
	all, err := cfg.Schedules(&cfg.Jobs[0])
	if err != nil || len(all) != 1 {
		t.Fatalf("%v %v", all, err)
	}
	day := time.Date(2026, 12, 23, 0, 0, 0, 0, time.UTC)
	if n := all[0].Next(day); !n.IsZero() {
		t.Errorf("kept to what never came: %s", n)
	}
	cfg.CalendarOf("ops").Set([]schedule.Entry{{From: day.AddDate(0, 0, 1), To: day.AddDate(0, 0, 3), Floating: true}})
	if n := all[0].Next(day); n != time.Date(2026, 12, 25, 7, 0, 0, 0, time.UTC) {
		t.Errorf("the next is %s", n)
	}

	path := configtest.Write(t, "rouse.yaml", strings.Replace(text, "file: team.ics", "file: work/team.ics", 1), filepath.Join("work", "team.ics"), teamFile)
	if _, err := configtest.Load(path, nil); err == nil || !strings.Contains(err.Error(), "the calendar team") {
		t.Errorf("a calendar that an agent can write: %v", err)
	}
}
