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
