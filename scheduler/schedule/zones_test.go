package schedule_test

import (
	"archive/zip"
	"fmt"
	"go/build"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"rouse/scheduler/schedule"
)

// stretch is a period with a constant offset, in seconds since 1970.
type stretch struct{ start, end, offset int64 }

// stretches returns the stretches of a zone from 2000 to 2040, with a few days before and after. It
// finds them by hourly checks.
func stretches(zone *time.Location) []stretch {
	offset := func(unix int64) int64 { _, o := time.Unix(unix, 0).In(zone).Zone(); return int64(o) }
	const hour = 3600
	begin, end := at("1999-12-25 00:00").Unix(), at("2041-01-07 00:00").Unix()
	out := []stretch{{begin, end, offset(begin)}}
	for t := begin; t < end; t += hour {
		last := &out[len(out)-1]
		if offset(t+hour) == last.offset {
			continue
		}
		last.end = t + int64(sort.Search(hour, func(n int) bool { return offset(t+int64(n)) != last.offset }))
		out = append(out, stretch{last.end, end, offset(last.end)})
	}

	return out
}

// wall is a zone with its local dates from 2000 to 2040, stored as UTC seconds since 1970.
type wall struct {
	zone  *time.Location
	clock []stretch
	dates []int64
}

const day = 24 * 3600

func newWall(zone *time.Location) wall {
	w := wall{zone: zone, clock: stretches(zone)}
	first, last := at("1999-12-31 00:00").Unix(), at("2040-12-31 00:00").Unix()
	for d := first; d <= last; d += day {
		shown := func(s stretch) bool { return s.start+s.offset < d+day && d < s.end+s.offset }
		if slices.ContainsFunc(w.clock, shown) {
			w.dates = append(w.dates, d)
		}
	}

	return w
}

// walk iterates over the runs of a daily job on every date accepted by near. It compares each run
// with the instant at which the clock first shows or passes the time.
func (w wall) walk(t *testing.T, hour, minute int, near func(date int64) bool) {
	t.Helper()
	s := parse(t, schedule.Options{Cron: fmt.Sprintf("%d %d * * *", minute, hour), Location: w.zone})
	now := 0
	fire := func(d int64) int64 {
		reading := d + int64(hour)*3600 + int64(minute)*60
		for w.clock[now].end+w.clock[now].offset <= reading {
			now++
		}
		return max(reading-w.clock[now].offset, w.clock[now].start)
	}

	last := fire(w.dates[0])
	for _, d := range w.dates[1:] {
		want := fire(d)
		if near == nil || near(d) {
			if got := s.Next(time.Unix(last, 0)); got.Unix() != want || got.Nanosecond() != 0 {
				t.Errorf("%02d:%02d in %s: after %s comes %s, want %s", hour, minute, w.zone, time.Unix(last, 0).In(w.zone), got.In(w.zone), time.Unix(want, 0).In(w.zone))
				return
			}
		}

		last = want
	}
}

// nearChange reports whether the clock changes within three days of a date.
func (w wall) nearChange(date int64) bool {
	i := sort.Search(len(w.clock), func(i int) bool { return w.clock[i].end+w.clock[i].offset > date-3*day })
	return i < len(w.clock)-1 && w.clock[i].end+w.clock[i].offset < date+4*day
}

// zoneNames returns all zone names in testdata and in the Go distribution.
func zoneNames(t *testing.T) []string {
	t.Helper()
	list, err := os.ReadFile("testdata/zones.txt")
	if err != nil {
		t.Fatal(err)
	}

	names := strings.Fields(string(list))
	if archive, err := zip.OpenReader(filepath.Join(build.Default.GOROOT, "lib", "time", "zoneinfo.zip")); err == nil {
		defer archive.Close()
		for _, f := range archive.File {
			if !f.FileInfo().IsDir() {
				names = append(names, f.Name)
			}
		}
	}

	slices.Sort(names)
	return slices.Compact(names)
}

// oddZones are zones with unusual clock changes.
var oddZones = []string{"America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "Asia/Tehran", "America/Sao_Paulo", "Antarctica/Troll", "Europe/Dublin"}

// TestDailyInEveryZone checks that a daily job fires exactly once on each existing local day, at
// every quarter of an hour. By default it covers the odd zones and a few random ones, near clock
// changes. With ROUSE_TEST_ZONES, it covers every day from 2000 to 2040 in the given zones, or in
// all of them.
func TestDailyInEveryZone(t *testing.T) {
	names, whole := zoneNames(t), os.Getenv("ROUSE_TEST_ZONES")
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	switch whole {
	case "all":
	case "":
		t.Logf("seed %d", seed)
		random.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
		names = append(slices.Clone(oddZones), names[:8]...)
	default:
		names = strings.Split(whole, ",")
	}

	// Clocks that were checked. Many names share a clock, and Next depends only on the clock.
	var walked sync.Map
	hour, minute := random.IntN(24), random.IntN(60)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zone, err := time.LoadLocation(name)
			if err != nil {
				t.Fatal(err)
			}

			w := newWall(zone)
			if other, ok := walked.LoadOrStore(fmt.Sprint(w.clock), name); ok {
				t.Logf("has the clock of %s", other)
				return
			}

			near := w.nearChange
			if whole != "" {
				near = nil
			}

			for quarter := range 96 {
				w.walk(t, quarter/4, quarter%4*15, near)
			}

			w.walk(t, hour, minute, nil)
		})
	}
}
