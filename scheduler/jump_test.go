package scheduler_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger/runs"
	"rouse/scheduler"
	"rouse/scheduler/schedule"
)

// The system's time zone changes. Each instant is decided once. A skipped time of day is missed,
// and a repeated time of day is a new instant. Instants that exist in both zones do not repeat.
func TestTheZoneOfTheMachineChanges(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		in := func(name string) []scheduler.Job {
			zone, err := schedule.Zone(name)
			if err != nil {
				t.Fatal(err)
			}
			daily := job(t, "daily", schedule.Options{Cron: "0 8 * * *", Location: zone, Follows: true})
			skip := job(t, "skip", schedule.Options{Cron: "0 8 * * *", Location: zone, Follows: true})
			skip.Policy.OnMiss = domain.MissSkip
			return []scheduler.Job{daily, skip, job(t, "hourly", schedule.Options{Cron: "0 * * * *", Location: zone, Follows: true}),
				job(t, "grid", schedule.Options{Every: "90m", Location: zone, Follows: true}),
				job(t, "fixed", schedule.Options{Cron: "0 8 * * *", Timezone: "Asia/Tokyo", Location: zone})}
		}
		s, err := scheduler.New(scheduler.Options{Ledger: d.l, Logger: slog.New(slog.NewTextHandler(&d.log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		change := func(at, zone string) {
			t.Helper()
			instant, err := time.Parse("2006-01-02 15:04", at)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Until(instant))
			synctest.Wait()
			if err := s.Set(t.Context(), in(zone), nil); err != nil {
				t.Fatal(err)
			}
		}

		d.begin(s, nil, in("America/New_York")...)
		change("2000-01-02 08:30", "Europe/Berlin")    // from 03:30 to 09:30
		change("2000-01-03 12:30", "America/New_York") // from 13:30 to 07:30
		time.Sleep(time.Hour)
		synctest.Wait()
		d.stop()
		time.Sleep(3 * time.Hour)
		d.start(in("Asia/Tokyo")...) // 01:30 on the next day
		synctest.Wait()

		times := map[string][]string{}
		for _, r := range d.runs() {
			times[r.Job] = append(times[r.Job], r.ScheduledAt.UTC().Format("02 15:04"))
		}
		if want := []string{"01 13:00", "02 07:00", "03 07:00", "03 13:00"}; !slices.Equal(times["daily"], want) {
			t.Errorf("daily ran at %v, want %v", times["daily"], want)
		}
		if want := []string{"01 13:00", "03 07:00", "03 13:00"}; !slices.Equal(times["skip"], want) {
			t.Errorf("skip ran at %v, want %v", times["skip"], want)
		}
		if want := []string{"01 23:00", "02 23:00"}; !slices.Equal(times["fixed"], want) {
			t.Errorf("fixed ran at %v, want %v", times["fixed"], want)
		}
		for name, step := range map[string]time.Duration{"hourly": time.Hour, "grid": 90 * time.Minute} {
			last := start
			for _, o := range slices.Backward(d.occurrences(name)) {
				if !o.Nominal.Equal(last.Add(step)) {
					t.Errorf("%s: %s follows %s", name, o.Nominal, last)
				}
				last = o.Nominal
			}
			if time.Since(last) >= step {
				t.Errorf("%s was last at %s", name, last)
			}
		}
		for job, want := range map[string]string{"daily": "caught up 1h30m0s late (the time zone of the machine changed)", "skip": "missed by 1h30m0s (the time zone of the machine changed); on_miss is skip"} {
			if !slices.ContainsFunc(d.occurrences(job), func(o runs.Occurrence) bool { return strings.HasPrefix(o.Reason, want) }) {
				t.Errorf("no instant of %s was %q: %+v", job, want, d.occurrences(job))
			}
		}
	})
}
