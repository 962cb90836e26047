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
	// cachedWeeks is how many weeks of a zone are cached: a power of two, and more than a year.
	cachedWeeks = 64
)

// zone is a time zone with a cache of how its clock changes in the weeks that were asked for.
// To fill it, package time is asked for the offset of each hour of a week: one answer costs it
// up to a microsecond, and the cache a few nanoseconds.
type zone struct {
	*time.Location
	weeks [cachedWeeks]atomic.Pointer[week]
}

// week is one since 1970, in UTC.
type week struct {
	number  int64
	offset  int64 // at its beginning
	changes []change
}

// change is an instant at which the clock is set to another offset.
type change struct{ at, offset int64 }

// zones are those in use, so that all schedules of a zone share its cache.
var zones = struct {
	sync.Mutex
	byLocation map[*time.Location]*zone
	byName     map[string]*time.Location
}{byLocation: map[*time.Location]*zone{}, byName: map[string]*time.Location{}}

// maxZones is more than there are. But a location can be loaded any number of times, and each
// counts. Schedules keep the zones that are dropped here.
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

// Zone is the time zone of an IANA name, the same one each time: all schedules in it share what is known of it.
func Zone(name string) (*time.Location, error) {
	zones.Lock()
	defer zones.Unlock()

	l := zones.byName[name]
	if l == nil {
		var err error
		// Local would be another zone on another machine.
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

// offset is what the local clock is ahead of UTC at an instant, in seconds.
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

// constantOffset returns the offset if it is the same from the day before a date to the day after it.
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

// scanWeek asks for the offset of each hour. The second at which it changes is searched for as
// well: time.ZoneBounds is wrong about it on 31 December of leap years, where it returns an end
// in the past, and can be an hour off where the rules of a zone begin.
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

// hasDate reports whether there is a local date at all: Apia had no 2011-12-30.
func (z *zone) hasDate(d date) bool { return z.dateAt(z.resolve(d.at(12, 0, 0))) == d }

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// MachineZone returns the current time zone of this machine, and whether it can change while the process
// runs. Package time reads the zone only once per process. TZ in the environment replaces /etc/localtime:
// a name is fixed, while a path is a file that can change.
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
