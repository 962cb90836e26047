package schedule

import (
	"strings"
	"testing"
	"time"
)

func TestParseTime(t *testing.T) {
	t.Parallel()
	const berlin, plain = "Europe/Berlin", "2026-11-21T14:02:00+01:00"
	for name, c := range map[string]struct {
		text, zone, now string
		ahead           bool
		want            string // RFC 3339, or a part of the error
		span            time.Duration
	}{
		"RFC 3339":               {"2026-11-21T08:00:00+01:00", berlin, plain, false, "2026-11-21T07:00:00Z", time.Second},
		"RFC 3339, small":        {"2026-11-21t08:00:00z", berlin, plain, false, "2026-11-21T08:00:00Z", time.Second},
		"RFC 3339, exact":        {"2026-11-21T08:00:00.250Z", berlin, plain, false, "2026-11-21T08:00:00.25Z", time.Millisecond},
		"date and time":          {"2026-11-21 08:00", berlin, plain, false, "2026-11-21T07:00:00Z", time.Minute},
		"date, T, seconds":       {" 2026-11-21T08:00:07 ", berlin, plain, true, "2026-11-21T07:00:07Z", time.Second},
		"date":                   {"2026-12-24", berlin, plain, true, "2026-12-23T23:00:00Z", 24 * time.Hour},
		"a short day":            {"2026-03-29", berlin, plain, false, "2026-03-28T23:00:00Z", 23 * time.Hour},
		"a long day":             {"2026-10-25", berlin, plain, false, "2026-10-24T22:00:00Z", 25 * time.Hour},
		"tomorrow":               {"Tomorrow", berlin, plain, true, "2026-11-21T23:00:00Z", 24 * time.Hour},
		"tomorrow, at midnight":  {"tomorrow", berlin, "2026-11-21T00:00:00+01:00", true, "2026-11-21T23:00:00Z", 24 * time.Hour},
		"tomorrow, by the zone":  {"tomorrow", "Pacific/Auckland", "2026-11-21T12:00:00Z", true, "2026-11-22T11:00:00Z", 24 * time.Hour},
		"tomorrow without 00:00": {"tomorrow", "America/Havana", "2026-03-07T20:00:00Z", true, "2026-03-08T05:00:00Z", 23 * time.Hour},
		"later today":            {"15:04", berlin, plain, true, "2026-11-21T14:04:00Z", time.Minute},
		"tomorrow at this time":  {"14:02", berlin, plain, true, "2026-11-22T13:02:00Z", time.Minute},
		"earlier today":          {"08:00:30", berlin, plain, false, "2026-11-21T07:00:30Z", time.Second},
		"today, not yet":         {"15:04", berlin, plain, false, "2026-11-21T14:04:00Z", time.Minute},
		"one digit":              {"8:00", berlin, plain, false, "2026-11-21T07:00:00Z", time.Minute},
		"in a gap":               {"02:30", berlin, "2026-03-29T01:00:00+01:00", true, "2026-03-29T01:00:00Z", time.Minute},
		"in a gap, with a date":  {"2026-03-29 02:30", berlin, plain, false, "2026-03-29T01:00:00Z", time.Minute},
		"the first of two":       {"2026-10-25 02:30", berlin, plain, false, "2026-10-25T00:30:00Z", time.Minute},
		"the second of two":      {"02:30", berlin, "2026-10-25T00:40:00Z", true, "2026-10-25T01:30:00Z", time.Minute},
		"a date that is not":     {"2011-12-30", "Pacific/Apia", plain, false, "there is no 2011-12-30 in Pacific/Apia", 0},
		"30 February":            {"2026-02-30", berlin, plain, false, `"2026-02-30" is not a time; write 15:04`, 0},
		"25 o'clock":             {"25:00", berlin, plain, true, `"25:00" is not a time`, 0},
		"nothing":                {"", berlin, plain, true, `"" is not a time`, 0},
		"now":                    {"now", berlin, plain, false, "2026-11-21T13:02:00Z", time.Millisecond},
		"now, ahead":             {"NOW", berlin, plain, true, "2026-11-21T13:02:00Z", time.Millisecond},
		"today":                  {"today", berlin, plain, false, "2026-11-20T23:00:00Z", 24 * time.Hour},
		"today at":               {"today 08:00", berlin, plain, true, "2026-11-21T07:00:00Z", time.Minute},
		"yesterday":              {"yesterday", berlin, plain, false, "2026-11-19T23:00:00Z", 24 * time.Hour},
		"yesterday at":           {"Yesterday  08:00:05", berlin, plain, false, "2026-11-20T07:00:05Z", time.Second},
		"yesterday, skipped":     {"yesterday", "Pacific/Apia", "2011-12-31T12:00:00+14:00", false, "2011-12-29T10:00:00Z", 24 * time.Hour},
		"tomorrow at":            {"tomorrow 8am", berlin, plain, true, "2026-11-22T07:00:00Z", time.Minute},
		"tomorrow, skipped":      {"tomorrow 08:00", "Pacific/Apia", "2011-12-29T12:00:00-10:00", true, "2011-12-30T18:00:00Z", time.Minute},
		"half past, pm":          {"8:30PM", berlin, plain, false, "2026-11-21T19:30:00Z", time.Minute},
		"the last monday":        {"monday", berlin, plain, false, "2026-11-15T23:00:00Z", 24 * time.Hour},
		"the next monday":        {"monday", berlin, plain, true, "2026-11-22T23:00:00Z", 24 * time.Hour},
		"last monday at":         {"Mon 08:00", berlin, plain, false, "2026-11-16T07:00:00Z", time.Minute},
		"next monday at":         {"monday 08:00", berlin, plain, true, "2026-11-23T07:00:00Z", time.Minute},
		"saturday, today":        {"saturday", berlin, plain, false, "2026-11-20T23:00:00Z", 24 * time.Hour},
		"saturday, in a week":    {"saturday", berlin, plain, true, "2026-11-27T23:00:00Z", 24 * time.Hour},
		"saturday, passed":       {"saturday 08:00", berlin, plain, true, "2026-11-28T07:00:00Z", time.Minute},
		"saturday, to come":      {"saturday 18:00", berlin, plain, true, "2026-11-21T17:00:00Z", time.Minute},
		"saturday, a week ago":   {"saturday 18:00", berlin, plain, false, "2026-11-14T17:00:00Z", time.Minute},
		"two hours ago":          {"-2h", berlin, plain, true, "2026-11-21T11:02:00Z", time.Second},
		"two hours back":         {"2h", berlin, plain, false, "2026-11-21T11:02:00Z", time.Second},
		"two hours on":           {"2h", berlin, plain, true, "2026-11-21T15:02:00Z", time.Second},
		"plus two hours":         {"+2h", berlin, plain, false, "2026-11-21T15:02:00Z", time.Second},
		"ago":                    {"90m ago", berlin, plain, true, "2026-11-21T11:32:00Z", time.Second},
		"in":                     {"in 3d", berlin, plain, false, "2026-11-24T13:02:00Z", time.Second},
		"in and ago":             {"in 3d ago", berlin, plain, false, `"in 3d ago" is not a time`, 0},
		"two signs":              {"+-2h", berlin, plain, false, `"+-2h" is not a time`, 0},
		"a weekday twice":        {"monday tuesday", berlin, plain, false, `"monday tuesday" is not a time`, 0},
		"a short weekday":        {"mo", berlin, plain, false, `"mo" is not a time`, 0},
		"13 pm":                  {"13pm", berlin, plain, false, `"13pm" is not a time`, 0},
		"before all years":       {"0001-01-01T00:00:00+01:00", berlin, plain, false, "is not a time", 0},
		"words":                  {"soon\x1b[2J", berlin, plain, true, "is not a time", 0},
	} {
		t.Run(name, func(t *testing.T) {
			zone, err := time.LoadLocation(c.zone)
			if err != nil {
				t.Fatal(err)
			}

			now, err := time.Parse(time.RFC3339, c.now)
			if err != nil {
				t.Fatal(err)
			}

			got, err := ParseTime(c.text, now, zone, c.ahead)
			if c.span == 0 {
				if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\x1b") {
					t.Errorf("%v: %v, want %q", got, err, c.want)
				}
				return
			}

			if text := got.At.UTC().Format(time.RFC3339Nano); err != nil || text != c.want || got.Precision != c.span {
				t.Errorf("%s for %s (%v), want %s for %s", text, got.Precision, err, c.want, c.span)
			}
		})
	}
}

// FuzzParseTime checks that ParseTime does not panic, that its errors contain no control
// characters, and that weekdays and times of day respect ahead.
func FuzzParseTime(f *testing.F) {
	for _, text := range []string{"now", "-2h", "in 3d", "2h ago", "yesterday", "monday 08:00", "8:30pm", "2026-03-29 02:30", "2026-11-21T08:00:00Z", "2011-12-30"} {
		for _, zone := range []string{"Europe/Berlin", "Pacific/Apia", "America/Havana"} {
			f.Add(text, zone, int64(1_795_266_120), true)
			f.Add(text, zone, int64(1_325_246_400), false)
		}
	}

	f.Fuzz(func(t *testing.T, text, name string, unix int64, ahead bool) {
		zone, err := Zone(name)
		if err != nil || unix < 0 || unix > 4_102_444_800 {
			return
		}
		now := time.Unix(unix, 0).UTC()
		got, err := ParseTime(text, now, zone, ahead)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\x1b\n\r") {
				t.Errorf("%q: %q", text, err)
			}
			return
		}

		if got.Precision <= 0 || got.At.Year() < 1 || got.At.Year() > 9999 {
			t.Errorf("%q: %v", text, got)
		}
		day, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(text)), " ")
		if _, ok := parseWeekday(day); ok && got.At.After(now) != ahead {
			t.Errorf("%q at %s: %s, ahead %v", text, now, got.At, ahead)
		}
		again, err := ParseTime(got.At.Format(time.RFC3339Nano), now, zone, ahead)
		if err != nil || !again.At.Equal(got.At) {
			t.Errorf("%q: %s is read back as %s (%v)", text, got.At, again.At, err)
		}
	})
}
