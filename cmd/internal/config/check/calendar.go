package check

import (
	"net/url"
	"slices"
	"time"

	"rouse/cmd/internal/config"
	"rouse/internal/text"
	"rouse/scheduler/calendar"
	"rouse/scheduler/schedule"
)

const minRefresh = 5 * time.Minute

// calendars checks calendars.
type calendars struct {
	report
	protected *protected
}

func (c calendars) checkCalendars() {
	unique(c.report, "calendars", c.cfg.Calendars, func(one config.Calendar) config.Name { return one.Name })
	for path, one := range config.Each("calendars", c.cfg.Calendars) {
		c.checkCalendar(path, one, c.cfg.AddCalendar(string(one.Name)))
	}
}

func (c calendars) checkCalendar(path string, one *config.Calendar, made *schedule.Calendar) {
	kind := c.oneOf(path, "holidays", "file", "url")
	if kind == "" {
		return
	}
	for _, key := range []string{"private_network", "refresh"} {
		if at := path + "." + key; kind != "url" && c.d.Given(at) {
			c.bad(at, "goes with url")
		}
	}

	at := path + "." + kind
	if !c.hasNoProblem(at) {
		return
	}
	switch kind {
	case "holidays":
		entries, err := calendar.Holidays(one.Holidays, time.Now())
		if err != nil {
			c.bad(at, "%s", err.Error()).Hint = text.DidYouMean(one.Holidays, calendar.Places())
		}
		made.Set(entries)
	case "file":
		c.calendarFile(at, string(one.File), made)
	case "url":
		c.calendarURL(path, one)
	}
}

func (c calendars) calendarFile(at, file string, made *schedule.Calendar) {
	// A writer of the file decides when jobs run.
	c.protected.calendarFiles = append(c.protected.calendarFiles, trusted{what: "the calendar " + made.Name(), path: file, at: c.d.Place(at)})
	content, err := c.cfg.Sources.Read(file, config.ReadPlain)
	if err != nil {
		c.bad(at, "%s", err.Error())
		return
	}
	entries, err := calendar.Parse(content, time.Now())
	if err != nil {
		c.bad(at, "%s: %s", config.Display(file), err.Error())
	}
	made.Set(entries)
}

func (c calendars) calendarURL(path string, one *config.Calendar) {
	// The message omits the address, because it may be a secret.
	if u, err := url.Parse(one.Address()); one.URL != "" && (err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !one.Near)) {
		c.bad(path+".url", "must be an address like https://example.com/team.ics; http:// is for private_network: true alone")
	}
	c.notEmpty(path+".url", one.URL, "is empty")
	if time.Duration(one.Refresh) < minRefresh {
		c.bad(path+".refresh", "is at least %s", config.Duration(minRefresh))
	}
}

// fetched reports whether a calendar comes from a URL.
func (c calendars) fetched(name string) bool {
	return slices.ContainsFunc(c.cfg.Calendars, func(one config.Calendar) bool { return string(one.Name) == name && one.URL != "" })
}
