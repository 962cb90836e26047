package config

import (
	"maps"
	"slices"
	"strings"

	"rouse/scheduler/schedule"
)

// Calendar configures the source of a calendar: public holidays, an iCalendar file or a URL.
type Calendar struct {
	Name     Name     `key:"name" required:"yes" doc:"by which exclude and only of jobs name it" example:"closed"`
	Holidays string   `key:"holidays" doc:"the public holidays of a country or a part of one, like DE, DE-BY or US" example:"DE-BY"`
	File     Path     `key:"file" doc:"an iCalendar file (.ics), read when it changes" example:"./closed.ics"`
	URL      string   `key:"url" doc:"of an iCalendar file, https:// or webcal://; best as secret:NAME where whoever knows it may read the calendar" example:"https://example.com/closed.ics"`
	Near     bool     `key:"private_network" doc:"the server of url may be on this machine or its network"`
	Refresh  Duration `key:"refresh" default:"6h" positive:"yes" doc:"how often url is fetched, 5m at least"`

	At Position
}

// Address returns the URL of the calendar, with https:// in place of webcal://.
func (c Calendar) Address() string {
	if rest, ok := strings.CutPrefix(c.URL, "webcal://"); ok {
		return "https://" + rest
	}
	return c.URL
}

// AddCalendar returns a new, empty calendar. If name is not empty, CalendarOf returns it too.
func (c *Config) AddCalendar(name string) *schedule.Calendar {
	made := schedule.NewCalendar(name)
	if c.calendars == nil {
		c.calendars = map[string]*schedule.Calendar{}
	}
	if name != "" {
		c.calendars[name] = made
	}
	return made
}

// CalendarNames returns the names of all calendars, sorted.
func (c *Config) CalendarNames() []string { return slices.Sorted(maps.Keys(c.calendars)) }

// CalendarOf returns the calendar with a name, or nil if it is not configured. A calendar with a
// URL is empty until it is fetched.
func (c *Config) CalendarOf(name string) *schedule.Calendar { return c.calendars[name] }
