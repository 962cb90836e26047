package schedule

import (
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The cached offsets agree with package time, near clock changes and far from them.
func TestZoneOffset(t *testing.T) {
	list, err := os.ReadFile("testdata/zones.txt")
	if err != nil {
		t.Fatal(err)
	}

	names := strings.Fields(string(list))
	rapid.Check(t, func(t *rapid.T) {
		location, err := loadZone("timezone", rapid.SampledFrom(names).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}

		z := zoneOf(location)
		at := rapid.Int64Range(time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).Unix()).Draw(t, "at")
		times := []int64{at}
		if _, end := time.Unix(at, 0).In(location).ZoneBounds(); !end.IsZero() {
			for _, c := range z.week(end.Unix()).changes {
				times = append(times, c.at-1, c.at, c.at+1)
			}
			times = append(times, end.Unix()+rapid.Int64Range(-2*daySeconds, 2*daySeconds).Draw(t, "away"))
		}

		for _, u := range times {
			_, want := time.Unix(u, 0).In(location).Zone()
			if got := z.offset(u); got != int64(want) {
				t.Fatalf("%s at %d: %d, want %d", location, u, got, want)
			}

			d := z.dateAt(u)
			if y, m, day := time.Unix(u, 0).In(location).Date(); d != dateOf(time.Date(y, m, day, 12, 0, 0, 0, time.UTC)) {
				t.Fatalf("%s at %d: date %d, want %d-%d-%d", location, u, d, y, m, day)
			}

			offset, steady := z.constantOffset(d)
			for s := (d - 1).at(0, 0, 0); steady && s < (d+2).at(0, 0, 0); s += 1799 {
				if _, o := time.Unix(s, 0).In(location).Zone(); int64(o) != offset {
					t.Fatalf("%s: the days around %d are not steady at %d", location, u, s)
				}
			}
		}
	})
}
