package calendar

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // zones must be known on a machine without a zone database

	ics "github.com/arran4/golang-ical"
)

// one reads the time of a property, zero when it is not there.
func (r reader) one(e *ics.VEvent, property ics.ComponentProperty) (moment, error) {
	p := e.GetProperty(property)
	if p == nil {
		return moment{}, nil
	}
	return r.moment(p, p.Value)
}

// many reads the times of a property that may be there several times, and list several.
func (r reader) many(e *ics.VEvent, property ics.ComponentProperty) (out []time.Time, err error) {
	for _, p := range e.GetProperties(property) {
		for _, value := range strings.Split(p.Value, ",") {
			m, err := r.moment(p, value)
			if err != nil {
				return nil, err
			}
			out = append(out, m.Time)
		}
	}
	return out, nil
}

// moment reads 20261224, 20261224T080000Z, or 20261224T080000 in the zone that its property names.
func (r reader) moment(p *ics.IANAProperty, value string) (moment, error) {
	wrong := func() (moment, error) {
		return moment{}, fmt.Errorf("%s is %q, which is no time", p.IANAToken, value)
	}
	if t, err := time.Parse("20060102", value); err == nil {
		return moment{t, true, true}, nil
	}
	if t, err := time.Parse("20060102T150405Z", value); err == nil {
		return moment{t, false, false}, nil
	}

	zone := p.ICalParameters["TZID"]
	if len(zone) == 0 {
		t, err := time.Parse("20060102T150405", value)
		if err != nil {
			return wrong()
		}
		return moment{t, true, false}, nil
	}

	where, err := r.zone(zone[0])
	if err != nil {
		return moment{}, err
	}
	t, err := time.ParseInLocation("20060102T150405", value, where)
	if err != nil {
		return wrong()
	}
	return moment{t, false, false}, nil
}

// zone finds the zone of a name: of IANA, of Windows, or of one that the file says more of.
func (r reader) zone(id string) (*time.Location, error) {
	if known := r.zones[id]; known != nil {
		return known, nil
	}
	for _, name := range []string{id, windowsZones[id]} {
		// A name that some programs put before it: /citadel.org/20260101_1/Europe/Berlin.
		for rest := strings.Trim(name, "/"); rest != "" && rest != "Local"; {
			if l, err := time.LoadLocation(rest); err == nil {
				return l, nil
			}
			_, after, found := strings.Cut(rest, "/")
			if !found {
				break
			}
			rest = after
		}
	}
	return nil, fmt.Errorf("the time zone %q is not known", id)
}

// zonesOf are the zones of which a file says which of IANA they are.
func zonesOf(c *ics.Calendar) map[string]*time.Location {
	out := map[string]*time.Location{}
	for _, z := range c.Timezones() {
		id, where := z.GetProperty("TZID"), z.GetProperty("X-LIC-LOCATION")
		if id == nil || where == nil || where.Value == "Local" {
			continue
		}
		if l, err := time.LoadLocation(where.Value); err == nil {
			out[id.Value] = l
		}
	}
	return out
}

var durationForm = regexp.MustCompile(`^\+?P(?:(\d{1,4})W)?(?:(\d{1,5})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,8})M)?(?:(\d{1,9})S)?)?$`)

// parseDuration reads P1W, P2D or PT1H30M.
func parseDuration(value string) (time.Duration, error) {
	m := durationForm.FindStringSubmatch(value)
	if m == nil || strings.HasSuffix(value, "P") || strings.HasSuffix(value, "T") {
		return 0, fmt.Errorf("DURATION is %q, which is no length of time", value)
	}

	var d time.Duration
	for i, unit := range []time.Duration{7 * 24 * time.Hour, 24 * time.Hour, time.Hour, time.Minute, time.Second} {
		n, _ := strconv.Atoi(m[i+1]) // digits, or nothing
		d += time.Duration(n) * unit
	}
	return d, nil
}
