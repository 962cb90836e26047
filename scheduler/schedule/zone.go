package schedule

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	daySeconds  = 24 * 3600
	weekSeconds = 7 * daySeconds
	// cachedWeeks is the number of cached weeks per zone. It is a power of two and more than a
	// year.
	cachedWeeks = 64
)

// zone is a time zone with a cache of its clock changes by week. The cache is much faster than
// package time, which is asked for the offset of each hour of a week.
type zone struct {
	*time.Location
	weeks [cachedWeeks]atomic.Pointer[week]
}

// week is a cached week in UTC. number counts from 1970.
type week struct {
	number  int64
	offset  int64 // at the beginning of the week
	changes []change
}

// change is a change of the offset.
type change struct{ at, offset int64 }

// zones are the zones in use. All schedules of a zone share its cache.
var zones = struct {
	sync.Mutex
	byLocation map[*time.Location]*zone
	byName     map[string]*time.Location
}{byLocation: map[*time.Location]*zone{}, byName: map[string]*time.Location{}}

// maxZones is more than the number of known zones. It limits the cache if a location is loaded
// repeatedly, which yields a new pointer each time. Schedules keep zones that are dropped from the
// cache.
const maxZones = 1000

func zoneOf(l *time.Location) *zone {
	zones.Lock()
	defer zones.Unlock()

	z := zones.byLocation[l]
	if z == nil {
		if len(zones.byLocation) >= maxZones {
			clear(zones.byLocation)
		}
		z = &zone{Location: l}
		zones.byLocation[l] = z
	}

	return z
}

// Zone returns the time zone of an IANA name, or an error if the name is unknown. It returns the
// same pointer each time, so that schedules share its cache.
func Zone(name string) (*time.Location, error) {
	zones.Lock()
	defer zones.Unlock()

	l := zones.byName[name]
	if l == nil {
		var err error
		// Reject Local, because it depends on the system.
		if l, err = time.LoadLocation(name); err != nil || name == "Local" {
			return nil, fmt.Errorf("%q is not a known time zone; use an IANA name like Europe/Berlin", name)
		}
		zones.byName[name] = l
	}

	return l, nil
}

func loadZone(field, name string) (*time.Location, error) {
	l, err := Zone(name)
	if err != nil {
		return nil, &Error{field, name, "is not a known time zone; use an IANA name like Europe/Berlin"}
	}
	return l, nil
}

// offset returns the offset of the local clock from UTC at t, in seconds.
func (z *zone) offset(t int64) int64 {
	w := z.week(t)
	o := w.offset
	for _, c := range w.changes {
		if t < c.at {
			break
		}
		o = c.offset
	}

	return o
}

// constantOffset returns the offset if it is constant from the day before d to the day after it.
func (z *zone) constantOffset(d date) (offset int64, ok bool) {
	from, to := int64(d-1)*daySeconds, int64(d+2)*daySeconds
	first := z.week(from)
	last := first
	if to >= (first.number+1)*weekSeconds {
		last = z.week(to)
	}
	if len(first.changes) == 0 && len(last.changes) == 0 {
		return first.offset, true
	}

	for _, w := range []*week{first, last} {
		for _, c := range w.changes {
			if from < c.at && c.at <= to {
				return 0, false
			}
		}
	}

	return z.offset(from), true
}

func (z *zone) week(t int64) *week {
	n := floorDiv(t, weekSeconds)
	place := &z.weeks[n&(cachedWeeks-1)]
	w := place.Load()
	if w == nil || w.number != n {
		w = z.scanWeek(n)
		place.Store(w)
	}

	return w
}

// scanWeek computes the changes of a week from the offset of each hour. It finds the exact second
// by binary search. time.ZoneBounds is not used, because its results are wrong on 31 December of
// leap years and where the rules of a zone begin.
func (z *zone) scanWeek(number int64) *week {
	shown := func(t int64) int64 {
		_, o := time.Unix(t, 0).In(z.Location).Zone()
		return int64(o)
	}
	const hour = 3600
	begin := number * weekSeconds
	w := &week{number: number, offset: shown(begin)}
	for t, before := begin, w.offset; t < begin+weekSeconds; t += hour {
		after := shown(t + hour)
		if after == before {
			continue
		}
		at := t + 1 + int64(sort.Search(hour-1, func(n int) bool { return shown(t+1+int64(n)) != before }))
		w.changes = append(w.changes, change{at, after})
		before = after
	}

	return w
}

func (z *zone) dateAt(t int64) date { return date(floorDiv(t+z.offset(t), daySeconds)) }

// hasDate reports whether the zone has the local date. For example, Apia skipped 2011-12-30.
func (z *zone) hasDate(d date) bool { return z.dateAt(z.resolve(d.at(12, 0, 0))) == d }

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// MachineZone returns the system's current time zone, and whether it can change while the process
// runs. Package time reads the zone only once per process. The environment variable TZ takes
// precedence over /etc/localtime. A zone name in TZ is fixed, but a path refers to a file that can
// change.
func MachineZone() (zone *time.Location, changes bool) {
	file, set := os.LookupEnv("TZ")
	file = strings.TrimPrefix(file, ":")
	switch {
	case runtime.GOOS == "windows", set && !filepath.IsAbs(file):
		return time.Local, false
	case !set:
		file = "/etc/localtime"
	}

	target, _ := os.Readlink(file) // fails if the file is a copy, which has no zone name
	if _, name, ok := strings.Cut(target, "zoneinfo/"); ok {
		if zone, err := Zone(name); err == nil {
			return zone, true
		}
	}

	data, err := os.ReadFile(file)
	if err != nil {
		return time.UTC, true // like package time
	}
	zones.Lock()
	defer zones.Unlock()
	if zone = zones.byName[string(data)]; zone != nil {
		return zone, true
	}
	if zone, err = time.LoadLocationFromTZData("Local", data); err != nil {
		return time.UTC, true
	}
	zones.byName[string(data)] = zone
	return zone, true
}
