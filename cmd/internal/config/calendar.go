package config

import (
	"net/url"
	"strings"
	"time"

	"rouse/internal/text"
	"rouse/scheduler/calendar"
	"rouse/scheduler/schedule"
)

// Calendar is where the times of a name come from.
type Calendar struct {
	Name     Name     `key:"name" need:"yes" say:"by which exclude and only of jobs name it" eg:"closed"`
	Holidays string   `key:"holidays" say:"the public holidays of a country or a part of one, like DE, DE-BY or US" eg:"DE-BY"`
	File     Path     `key:"file" say:"an iCalendar file (.ics), read when it changes" eg:"./closed.ics"`
	URL      string   `key:"url" say:"of an iCalendar file, https:// or webcal://; best as secret:NAME where whoever knows it may read the calendar" eg:"https://example.com/closed.ics"`
	Near     bool     `key:"private_network" say:"the server of url may be on this machine or its network"`
	Refresh  Duration `key:"refresh" default:"6h" positive:"yes" say:"how often url is fetched, 5m at least"`

	At Position
}

const minRefresh = 5 * time.Minute

// Address is what a calendar is fetched from.
func (c Calendar) Address() string {
	if rest, ok := strings.CutPrefix(c.URL, "webcal://"); ok {
		return "https://" + rest
	}
	return c.URL
}

// CalendarOf returns a calendar, nil if there is none. That of a URL is empty until it is fetched.
func (c *Config) CalendarOf(name string) *schedule.Calendar { return c.calendars[name] }

func (c *checker) checkCalendars() {
	unique(c, "calendars", c.cfg.Calendars, func(one Calendar) Name { return one.Name })
	c.cfg.calendars = map[string]*schedule.Calendar{}
	for path, one := range each("calendars", c.cfg.Calendars) {
		made := schedule.NewCalendar(string(one.Name))
		if one.Name != "" {
			c.cfg.calendars[string(one.Name)] = made
		}
		c.checkCalendar(path, one, made)
	}
}

func (c *checker) checkCalendar(path string, one *Calendar, made *schedule.Calendar) {
	kind := c.oneOf(path, "holidays", "file", "url")
	if kind == "" {
		return
	}
	for _, key := range []string{"private_network", "refresh"} {
		if at := path + "." + key; kind != "url" && c.d.given(at) {
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

func (c *checker) calendarFile(at, file string, made *schedule.Calendar) {
	// Whoever can write it decides when jobs run.
	c.d.trusted = append(c.d.trusted, trusted{what: "the calendar " + made.Name(), path: file, at: c.d.place(at)})
	content, err := c.cfg.Sources.read(file, readPlain)
	if err != nil {
		c.bad(at, "%s", err.Error())
		return
	}
	entries, err := calendar.Parse(content, time.Now())
	if err != nil {
		c.bad(at, "%s: %s", display(file), err.Error())
	}
	made.Set(entries)
}

func (c *checker) calendarURL(path string, one *Calendar) {
	// The address itself may be a secret, and is not said.
	if u, err := url.Parse(one.Address()); one.URL != "" && (err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !one.Near)) {
		c.bad(path+".url", "must be an address like https://example.com/team.ics; http:// is for private_network: true alone")
	}
	c.notEmpty(path+".url", one.URL, "is empty")
	if time.Duration(one.Refresh) < minRefresh {
		c.bad(path+".refresh", "is at least %s", Duration(minRefresh))
	}
}

// fetched reports whether a calendar comes from a URL.
func (c *checker) fetched(name string) bool {
	one := find(nil, c.cfg.Calendars, name, func(one *Calendar) Name { return one.Name })
	return one != nil && one.URL != ""
}
