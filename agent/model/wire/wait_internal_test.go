package wire

import (
	"net/http"
	"testing"
	"time"
)

// TestNamedWait checks the retry delays in servers' messages.
func TestNamedWait(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 22, 30, 0, 0, time.UTC)
	for said, want := range map[string]time.Duration{
		"Rate limit reached for gpt-5 on requests per day (RPD): Limit 200, Used 200. Please try again in 7m12s. Visit us.": 7*time.Minute + 12*time.Second,
		"Please try again in 6h13m20.5s.":                          6*time.Hour + 13*time.Minute + 20500*time.Millisecond,
		"Please try again in 20ms.":                                20 * time.Millisecond,
		"Try again in 2 hours and 5 minutes":                       2*time.Hour + 5*time.Minute,
		"retry after 90 seconds":                                   90 * time.Second,
		"The limit resets in 3 days":                               72 * time.Hour,
		"You will regain access on 2026-12-01 at 00:00 UTC.":       90 * time.Minute,
		"You will regain access on 2026-12-01.":                    90 * time.Minute,
		"You will regain access on 2026-11-01.":                    0,
		"You will regain access on 2026-31-31.":                    0,
		"try again in 99999999999999999999999999h":                 0,
		"try again in 900d":                                        longestNamed,
		"try again in a while":                                     0,
		"Your prompt has 7m words; try again":                      0,
		"You exceeded your current quota, please check your plan.": 0,
	} {
		if got := namedWait(said, now); got != want {
			t.Errorf("%q: %s, want %s", said, got, want)
		}
	}
}

// TestRetryAfterIsBounded checks that a server cannot cause a pause of years.
func TestRetryAfterIsBounded(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]time.Duration{
		"90":                            90 * time.Second,
		"999999999":                     longestNamed,
		"Fri, 31 Dec 2199 23:59:59 GMT": longestNamed,
		"Fri, 31 Dec 1999 23:59:59 GMT": 0,
	} {
		if got, asked := retryAfter(&http.Response{Header: http.Header{"Retry-After": {said}}}); got != want || !asked {
			t.Errorf("%q: %s, want %s", said, got, want)
		}
	}
}
