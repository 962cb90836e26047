package bench

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What is compared does the same: on days on which no clock is set, the same schedules fire
// at the same instants.
func TestBenchScheduleBaselines(t *testing.T) {
	specs := dailySpecs(500)
	begin := time.Date(2026, 11, 20, 23, 59, 30, 0, time.UTC) // between two minutes
	var want []string
	for _, clock := range []clockwork{newTimetable(), newPlainHeap(), newOwnHeap()} {
		if err := clock.parse(specs); err != nil {
			t.Fatal(err)
		}

		for i := range specs {
			clock.put(i, begin)
		}

		clock.forget()
		var got []string
		for now := clock.head(); now.Before(begin.AddDate(0, 0, 2)); now = clock.head() {
			clock.wake(now, func(name string) { got = append(got, now.UTC().Format(time.RFC3339)+" "+name) })
		}

		slices.Sort(got)
		if want == nil {
			want = got
		}
		if len(got) != 2*len(specs) || !slices.Equal(got, want) {
			t.Errorf("%T: %d fires, the first are %v, want %d, %v", clock, len(got), got[:3], len(want), want[:3])
		}
	}
}

func TestBenchSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		figures, err := measureSchedule(t.Context(), io.Discard, 1, scheduleSizes{all: []int{50}, many: 200, due: 50, ready: 2 * time.Second, wakes: 1})
		if err != nil {
			t.Fatal(err)
		}

		var out bytes.Buffer
		if err := printFigures(&out, figures); err != nil {
			t.Fatal(err)
		}

		for _, text := range []string{"wake, 50 schedules", "live add, 50 schedules", "memory of one, 50 schedules", "50 of 200 due at once, durably queued", "robfig/cron itself"} {
			if !strings.Contains(out.String(), text) {
				t.Errorf("%q is missing in\n%s", text, &out)
			}
		}
	})
}
