package yaml

import (
	"strings"
	"testing"

	"rouse/scheduler/schedule"
)

// Times in English become valid lines.
func TestSpokenTimes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"every weekday at 8am": "schedule: weekly on mon-fri at 08:00", "weekdays 17:30": "schedule: weekly on mon-fri at 17:30",
		"every day at 6 pm": "schedule: daily at 18:00", "daily 07:15": "schedule: daily at 07:15", "every morning": "schedule: daily at 08:00", "nightly": "schedule: daily at 02:00",
		"every monday and thursday at noon": "schedule: weekly on mon,thu at 12:00", "Mon-Fri 9:00": "schedule: weekly on mon-fri at 09:00",
		"first of the month": "schedule: monthly on 1 at 08:00", "monthly on the 15th at 10am": "schedule: monthly on 15 at 10:00", "last day of the month": "schedule: monthly on 31 at 08:00",
		"weekends at 12am": "schedule: weekly on sat,sun at 00:00", "weekly": "schedule: weekly on mon at 08:00", "08:00": "schedule: daily at 08:00",
		"every 5 minutes": "every: 5m", "hourly": "", "every hour": "every: 1h", "every other day": "every: 48h", "2 weeks": "every: 336h", "every 2 weeks on monday": "schedule: weekly on mon at 08:00",
		"25:00": "", "soon": "", "0 8 * *": "",
	} {
		got := spoken(text)
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		key, value, _ := strings.Cut(got, ": ")
		var err error
		switch key {
		case "schedule":
			_, err = schedule.Parse(schedule.Options{Cron: value})
		case "every":
			_, err = schedule.Parse(schedule.Options{Every: value})
		}
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}
