package control

import (
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/api"
)

// TestPauseEnd checks the end of pauses requested at Saturday noon in Berlin.
func TestPauseEnd(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}

	now := time.Date(2026, 11, 21, 12, 0, 0, 0, zone)
	for name, c := range map[string]struct {
		ask  api.PauseRequest
		want string // RFC 3339, or part of the error
	}{
		"nobody knows":     {api.PauseRequest{}, "0001-01-01T00:00:00Z"},
		"hours":            {api.PauseRequest{For: "4h"}, "2026-11-21T15:00:00Z"},
		"days":             {api.PauseRequest{For: "7d"}, "2026-11-28T11:00:00Z"},
		"tomorrow":         {api.PauseRequest{Until: "tomorrow"}, "2026-11-21T23:00:00Z"},
		"later today":      {api.PauseRequest{Until: "12:01"}, "2026-11-21T11:01:00Z"},
		"tomorrow by time": {api.PauseRequest{Until: "12:00"}, "2026-11-22T11:00:00Z"},
		"both":             {api.PauseRequest{For: "4h", Until: "tomorrow"}, "not both"},
		"no time":          {api.PauseRequest{For: "0s"}, "would be none"},
		"for ever":         {api.PauseRequest{For: "100000d"}, "2300-09-06T11:00:00Z"},
		"today":            {api.PauseRequest{Until: "2026-11-21"}, "Sat 2026-11-21 00:00 CET has passed: it is Sat 2026-11-21 12:00 CET; for the rest of today write tomorrow"},
		"yesterday":        {api.PauseRequest{Until: "2026-11-20"}, "00:00 CET has passed: it is Sat 2026-11-21 12:00 CET"},
		"now":              {api.PauseRequest{Until: "2026-11-21T12:00:00+01:00"}, "has passed"},
		"no number":        {api.PauseRequest{For: "NaNd"}, "is not a length of time"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := PauseEnd(c.ask, now, zone)
			if err != nil {
				if !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %s", err, c.want)
				}
				return
			}

			if text := got.UTC().Format(time.RFC3339); text != c.want {
				t.Errorf("%s, want %s", text, c.want)
			}
		})
	}
}
