package schedule

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseDaily(t *testing.T) {
	for text, want := range map[string]string{"daily at 08:00": "daily at 08:00", " Daily  at 7:05 ": "daily at 07:05", "daily at 00:00": "daily at 00:00"} {
		if d, err := ParseDaily(text); err != nil || d.String() != want {
			t.Errorf("%q: %v, %v", text, d, err)
		}
	}
	for _, text := range []string{"", "08:00", "daily", "daily at", "daily at 24:00", "daily at 25:00", "daily at 08:00 UTC", "weekly at 08:00", "daily at 8"} {
		if d, err := ParseDaily(text); err == nil {
			t.Errorf("%q is taken for %v", text, d)
		}
	}
}

// A time of day occurs once a day, even if it is repeated or skipped.
func TestDailyOverClockChanges(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ at, after, want string }{
		{"daily at 08:00", "2026-03-28T08:00:00+01:00", "2026-03-29T08:00:00+02:00"},
		{"daily at 08:00", "2026-10-24T08:00:00+02:00", "2026-10-25T08:00:00+01:00"},
		// On the second day, 02:30 is skipped.
		{"daily at 02:30", "2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00"},
		{"daily at 02:30", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"},
		// On the second day, 02:30 occurs twice.
		{"daily at 02:30", "2026-10-24T02:30:00+02:00", "2026-10-25T02:30:00+02:00"},
		{"daily at 02:30", "2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"},
	} {
		d, err := ParseDaily(c.at)
		if err != nil {
			t.Fatal(err)
		}
		after, err := time.Parse(time.RFC3339, c.after)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Next(after, berlin).In(berlin).Format(time.RFC3339); got != c.want {
			t.Errorf("%s after %s: %s, want %s", c.at, c.after, got, c.want)
		}
	}
}

// In every zone, each existing date has one instant, in order.
func TestDailyOncePerDate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"Europe/Berlin", "America/Sao_Paulo", "Pacific/Apia", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Cairo", "America/Havana", "UTC"}).Draw(t, "zone")
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		d := Daily(rapid.IntRange(0, 24*60-1).Draw(t, "at"))
		at := time.Unix(rapid.Int64Range(0, 2_000_000_000).Draw(t, "from"), 0)

		at = d.Next(at, zone)
		for range 400 {
			next := d.Next(at, zone)
			if !next.After(at) {
				t.Fatalf("%v after %v", next, at)
			}
			want := NextDay(at, zone) // next existing date
			if y, m, day := next.In(zone).Date(); want.In(zone).Day() != day || want.In(zone).Month() != m || want.In(zone).Year() != y {
				t.Fatalf("%s in %s: %v after %v, want one on %v", d, name, next.In(zone), at.In(zone), want.In(zone))
			}
			at = next
		}
	})
}
