package calendar_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/scheduler/calendar"
	"rouse/scheduler/schedule"
)

var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// file returns a calendar with the given events.
func file(events ...string) []byte {
	var b strings.Builder
	b.WriteString("BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//test//EN\r\n")
	for _, e := range events {
		if strings.HasPrefix(e, "BEGIN:") {
			b.WriteString(strings.ReplaceAll(e, "\n", "\r\n") + "\r\n")
			continue
		}
		b.WriteString("BEGIN:VEVENT\r\n" + strings.ReplaceAll(e, "\n", "\r\n") + "\r\nEND:VEVENT\r\n")
	}
	b.WriteString("END:VCALENDAR\r\n")
	return []byte(b.String())
}

// near formats the entries in the year from now: start, length and title.
func near(entries []schedule.Entry) (out []string) {
	for _, e := range entries {
		if e.From.Before(now) || e.From.After(now.AddDate(1, 0, 0)) {
			continue
		}
		kind := ""
		if e.Floating {
			kind = " floating"
		}
		out = append(out, fmt.Sprintf("%s %s%s %s", e.From.Format("2006-01-02T15:04Z"), e.To.Sub(e.From), kind, e.Text))
	}
	slices.Sort(out)
	return out
}

// Events of all kinds yield the expected times.
func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		file []byte
		want []string
	}{
		"day":         {file("SUMMARY:Off\nDTSTART;VALUE=DATE:20261224"), []string{"2026-12-24T00:00Z 24h0m0s floating Off"}},
		"days":        {file("SUMMARY:Off\nDTSTART;VALUE=DATE:20261224\nDTEND;VALUE=DATE:20261227"), []string{"2026-12-24T00:00Z 72h0m0s floating Off"}},
		"utc":         {file("SUMMARY:Move\\, slowly\nDTSTART:20261224T080000Z\nDTEND:20261224T093000Z"), []string{"2026-12-24T08:00Z 1h30m0s Move, slowly"}},
		"zone":        {file("SUMMARY:Move\nDTSTART;TZID=Europe/Berlin:20261224T080000\nDURATION:PT45M"), []string{"2026-12-24T07:00Z 45m0s Move"}},
		"of Outlook":  {file("SUMMARY:Move\nDTSTART;TZID=W. Europe Standard Time:20261224T080000\nDURATION:P1DT1H"), []string{"2026-12-24T07:00Z 25h0m0s Move"}},
		"of a path":   {file("SUMMARY:Move\nDTSTART;TZID=/citadel.org/20261111_1/America/New_York:20261224T080000\nDURATION:P1W"), []string{"2026-12-24T13:00Z 168h0m0s Move"}},
		"own zone":    {file("BEGIN:VTIMEZONE\nTZID:Home\nX-LIC-LOCATION:Asia/Tokyo\nBEGIN:STANDARD\nDTSTART:19700101T000000\nTZOFFSETFROM:+0900\nTZOFFSETTO:+0900\nEND:STANDARD\nEND:VTIMEZONE", "SUMMARY:Move\nDTSTART;TZID=Home:20261224T080000\nDURATION:PT1H"), []string{"2026-12-23T23:00Z 1h0m0s Move"}},
		"floating":    {file("SUMMARY:Move\nDTSTART:20261224T080000\nDTEND:20261224T090000"), []string{"2026-12-24T08:00Z 1h0m0s floating Move"}},
		"yearly":      {file("SUMMARY:Founded\nDTSTART;VALUE=DATE:19991130\nRRULE:FREQ=YEARLY"), []string{"2026-11-30T00:00Z 24h0m0s floating Founded"}},
		"last Friday": {file("SUMMARY:Close\nDTSTART;TZID=Europe/Berlin:20270129T180000\nDURATION:PT2H\nRRULE:FREQ=MONTHLY;BYDAY=-1FR;COUNT=3"), []string{"2027-01-29T17:00Z 2h0m0s Close", "2027-02-26T17:00Z 2h0m0s Close", "2027-03-26T17:00Z 2h0m0s Close"}},
		"over a change of the clock": {file("SUMMARY:Close\nDTSTART;TZID=Europe/Berlin:20270327T180000\nDURATION:PT2H\nRRULE:FREQ=DAILY;UNTIL=20270328T235959Z"),
			[]string{"2027-03-27T17:00Z 2h0m0s Close", "2027-03-28T16:00Z 2h0m0s Close"}},
		"without some": {file("SUMMARY:Off\nDTSTART;VALUE=DATE:20270101\nRRULE:FREQ=WEEKLY;COUNT=4\nEXDATE;VALUE=DATE:20270108,20270115\nRDATE;VALUE=DATE:20270301"),
			[]string{"2027-01-01T00:00Z 24h0m0s floating Off", "2027-01-22T00:00Z 24h0m0s floating Off", "2027-03-01T00:00Z 24h0m0s floating Off"}},
		"one moved": {file("UID:1\nSUMMARY:Close\nDTSTART;TZID=Europe/Berlin:20270104T080000\nDURATION:PT1H\nRRULE:FREQ=WEEKLY;COUNT=3", "UID:1\nSUMMARY:Close late\nRECURRENCE-ID;TZID=Europe/Berlin:20270111T080000\nDTSTART;TZID=Europe/Berlin:20270112T100000\nDURATION:PT1H"),
			[]string{"2027-01-04T07:00Z 1h0m0s Close", "2027-01-12T09:00Z 1h0m0s Close late", "2027-01-18T07:00Z 1h0m0s Close"}},
		"one cancelled": {file("UID:1\nSUMMARY:Close\nDTSTART;TZID=Europe/Berlin:20270104T080000\nDURATION:PT1H\nRRULE:FREQ=WEEKLY;COUNT=2", "UID:1\nSTATUS:CANCELLED\nRECURRENCE-ID;TZID=Europe/Berlin:20270111T080000\nDTSTART;TZID=Europe/Berlin:20270111T080000"),
			[]string{"2027-01-04T07:00Z 1h0m0s Close"}},
		"cancelled": {file("SUMMARY:Off\nSTATUS:CANCELLED\nDTSTART;VALUE=DATE:20261224"), nil},
		"not busy":  {file("SUMMARY:Christmas Day\nTRANSP:TRANSPARENT\nDTSTART;VALUE=DATE:20261225"), []string{"2026-12-25T00:00Z 24h0m0s floating Christmas Day"}},
		"no events": {file(), nil},
		"folded":    {file("SUMMARY:A long\n  name\nDTSTART;VALUE=DATE:20261224"), []string{"2026-12-24T00:00Z 24h0m0s floating A long name"}},
		"a mark":    {append([]byte("\ufeff"), file("SUMMARY:Off\nDTSTART;VALUE=DATE:20261224")...), []string{"2026-12-24T00:00Z 24h0m0s floating Off"}},
	} {
		entries, err := calendar.Parse(c.file, now)
		if got := near(entries); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v %q, want %q", name, err, got, c.want)
		}
	}
}

// An invalid file is rejected with the name of the event.
func TestParseRefuses(t *testing.T) {
	for want, f := range map[string][]byte{
		"it is no iCalendar file":                                  []byte("<html>Please log in</html>"),
		"it is cut off: END:VCALENDAR is missing":                  file("SUMMARY:Off\nDTSTART;VALUE=DATE:20261224")[:120],
		`the event "Off": it has no DTSTART`:                       file("SUMMARY:Off"),
		`the event "Off": DTSTART is "20261324", which is no time`: file("SUMMARY:Off\nDTSTART;VALUE=DATE:20261324"),
		`the event "Off": the time zone "Elsewhere" is not known`:  file("SUMMARY:Off\nDTSTART;TZID=Elsewhere:20261224T080000"),
		`the event "Off": the time zone "Local" is not known`:      file("SUMMARY:Off\nDTSTART;TZID=Local:20261224T080000"),
		`the event "Off": it ends before it begins`:                file("SUMMARY:Off\nDTSTART;VALUE=DATE:20261224\nDTEND;VALUE=DATE:20261223"),
		`DURATION is "P", which is no length of time`:              file("SUMMARY:Off\nDTSTART;VALUE=DATE:20261224\nDURATION:P"),
		`its repetition (RRULE) is not understood`:                 file("SUMMARY:Off\nDTSTART;VALUE=DATE:20261224\nRRULE:FREQ=SOMETIMES"),
		`it is repeated each hour or more often`:                   file("SUMMARY:Off\nDTSTART:20261224T080000Z\nRRULE:FREQ=SECONDLY"),
		`it has two rules of repetition`:                           file("SUMMARY:Off\nDTSTART:20261224T080000Z\nRRULE:FREQ=DAILY\nRRULE:FREQ=WEEKLY"),
		"the calendar names more than 50000 times":                 file("SUMMARY:Off\nDTSTART:20261224T080000Z\nRRULE:FREQ=DAILY;BYHOUR=0,1,2,3,4,5,6,7,8,9,10,11,12;BYMINUTE=0,1,2,3,4,5,6,7"),
		"it has more than 4.0 MiB":                                 file("SUMMARY:Off\nDTSTART:20261224T080000Z\nDESCRIPTION:" + strings.Repeat("x", calendar.MaxBytes)),
	} {
		entries, err := calendar.Parse(f, now)
		if err == nil || !strings.Contains(err.Error(), want) || len(entries) > 0 {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Holidays are whole days, including movable holidays and days of observance.
func TestHolidays(t *testing.T) {
	for place, want := range map[string][]string{
		"DE":    {"2026-12-25", "2027-01-01", "2027-03-26", "2027-05-06"},
		"DE-BY": {"2026-12-26", "2027-01-06", "2027-05-27"},
		// The Fourth of July is a Sunday in 2027 and is observed on Monday.
		"US": {"2026-11-26", "2027-01-18", "2027-07-05"},
		"GB": {"2026-12-28", "2027-03-29"},
		"FR": {"2027-07-14"}, "AU-NSW": {"2027-04-25"}, "CH-ZH": {"2027-08-01"}, "EU": {"2027-05-01"},
	} {
		entries, err := calendar.Holidays(place, now)
		if err != nil {
			t.Fatal(err)
		}
		for _, day := range want {
			if !slices.ContainsFunc(entries, func(e schedule.Entry) bool {
				return e.Floating && e.From.Format(time.DateOnly) == day && e.To.Sub(e.From) == 24*time.Hour
			}) {
				t.Errorf("%s: %s is no holiday", place, day)
			}
		}
	}
	for _, place := range calendar.Places() {
		if entries, err := calendar.Holidays(place, now); err != nil || len(entries) < 13*5 {
			t.Errorf("%s has %d holidays in 13 years (%v)", place, len(entries), err)
		}
	}

	for place, want := range map[string]string{"XX": `no holidays are known of "XX"; there are AR, AT`, "AU": `no holidays are known of "AU", only of its parts`, "FR-IDF": `"FR-IDF", only of the whole country FR`, "": "no holidays"} {
		if _, err := calendar.Holidays(place, now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", place, err, want)
		}
	}
}
