package text_test

import (
	"testing"
	"time"

	"rouse/internal/text"
)

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 ms", 340 * time.Millisecond: "340 ms", 1200 * time.Millisecond: "1.2 s", 9 * time.Second: "9 s", 59*time.Second + 700*time.Millisecond: "1 min", 12300 * time.Millisecond: "12 s",
		3 * time.Minute: "3 min", 3*time.Minute + 5*time.Second: "3 min 5 s", 59*time.Minute + 40*time.Second: "1 h", 2*time.Hour + 5*time.Minute: "2 h 5 min", 23*time.Hour + 59*time.Minute + 40*time.Second: "1 d",
		4*24*time.Hour + 16*time.Hour: "4 d 16 h", 47*time.Hour + 40*time.Minute: "2 d", 40 * 24 * time.Hour: "40 d", -time.Minute: "1 min",
	} {
		if got := text.Span(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

func TestWhen(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.Local)
	for d, want := range map[time.Duration]string{
		0: "now", 400 * time.Millisecond: "now", -20 * time.Second: "20 s ago", -3*time.Minute - 20*time.Second: "3 min ago", 3*time.Minute + 20*time.Second: "in 3 min 20 s",
		-2*time.Hour - 5*time.Minute: "2 h 5 min ago", 4*24*time.Hour + 16*time.Hour: "in 4 d 16 h", -15 * 24 * time.Hour: "15 d ago", -100 * 24 * time.Hour: "2026-08-18", 365 * 24 * time.Hour: "2027-11-26",
	} {
		if got := text.When(now.Add(d), now); got != want {
			t.Errorf("%v from now is %q, want %q", d, got, want)
		}
	}
	if got := text.When(time.Time{}, now); got != "–" {
		t.Errorf("no time is %q", got)
	}
}

func TestParseSpan(t *testing.T) {
	for s, want := range map[string]time.Duration{"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "7d": 7 * 24 * time.Hour, "0.7d": 60480 * time.Second, "-1d": -24 * time.Hour, "0": 0} {
		if got, err := text.ParseSpan(s); err != nil || got != want {
			t.Errorf("%s is %v (%v), want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "d", "7", "7w", "1d2h", "NaNd", "Infd", "1e9d", "7 d", "seven"} {
		if got, err := text.ParseSpan(s); err == nil {
			t.Errorf("%q is %v", s, got)
		}
	}
}

func TestFormatSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 90 * time.Second: "1m30s", 15 * time.Minute: "15m", 6 * time.Hour: "6h", 25 * time.Hour: "25h", 7 * 24 * time.Hour: "7d", 1500 * time.Millisecond: "1.5s",
	} {
		got := text.FormatSpan(d)
		if back, err := text.ParseSpan(got); got != want || err != nil || back != d {
			t.Errorf("%v is %q (%v, %v), want %q", d, got, back, err, want)
		}
	}
}
