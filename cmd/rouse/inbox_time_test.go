package main

import (
	"testing"
	"time"
)

func TestTimeLeft(t *testing.T) {
	for d, want := range map[time.Duration]string{
		72*time.Hour - time.Second:    "72 hours left",
		2 * time.Hour:                 "2 hours left",
		119*time.Minute + time.Second: "119 minutes left",
		time.Minute:                   "1 minute left",
		time.Second:                   "less than a minute left",
		0:                             "over time",
		-time.Hour:                    "over time",
	} {
		if got := timeLeft(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}
