package calendar

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	// Embed the time zone database, because the system may not have one.
	_ "time/tzdata"

	ics "github.com/arran4/golang-ical"
)

// one returns the time of a property, or the zero moment if there is no such property.
func (r reader) one(e *ics.VEvent, property ics.ComponentProperty) (moment, error) {
	p := e.GetProperty(property)
	if p == nil {
		return moment{}, nil
	}
	return r.moment(p, p.Value)
}

// many returns the times of a property that can be repeated and can contain a list.
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

// moment parses 20261224, 20261224T080000Z, or 20261224T080000 in the property's zone.
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

// zone returns the zone of a name. It accepts IANA names, Windows names, and names that the file
// maps to an IANA name.
func (r reader) zone(id string) (*time.Location, error) {
	if known := r.zones[id]; known != nil {
		return known, nil
	}
	for _, name := range []string{id, windowsZones[id]} {
		// Some programs add a prefix: /citadel.org/20260101_1/Europe/Berlin.
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

// zonesOf returns the zones that a file maps to an IANA name.
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

// parseDuration parses durations like P1W, P2D or PT1H30M.
func parseDuration(value string) (time.Duration, error) {
	m := durationForm.FindStringSubmatch(value)
	if m == nil || strings.HasSuffix(value, "P") || strings.HasSuffix(value, "T") {
		return 0, fmt.Errorf("DURATION is %q, which is no length of time", value)
	}

	var d time.Duration
	for i, unit := range []time.Duration{7 * 24 * time.Hour, 24 * time.Hour, time.Hour, time.Minute, time.Second} {
		n, _ := strconv.Atoi(m[i+1]) // digits or empty
		d += time.Duration(n) * unit
	}
	return d, nil
}
