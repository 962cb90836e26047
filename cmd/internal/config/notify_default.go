package config

import (
	"slices"

	"rouse/scheduler/schedule"
)

// UsualDigest is when a channel sends a summary each day of which nothing else is said, if jobs that run often leave
// their successes to it. NoDigest is said of one that is to send none.
const (
	UsualDigest = "daily at 08:00"
	NoDigest    = "off"
)

// tells gives a job the outcomes that it tells about, where the configuration has none: of one that runs more often than hourly those
// that need somebody, for nobody reads a message every five minutes.
func (c *checker) tells(path string, j *Job) {
	if c.d.given(path + ".notify.on") {
		return
	}

	j.Notify.On = []string{"success", "error", "waiting"}
	// What dates and calendars leave out changes nothing: the same configuration means the same on each day.
	if slices.ContainsFunc(j.schedules, (*schedule.Schedule).MoreThanHourly) {
		j.Notify.On, j.Notify.Digested = []string{"error", "waiting"}, true
	}
}

// DigestOf is when a channel sends a summary each day, "" for never.
func (c *Config) DigestOf(channel string) string {
	said := ""
	for _, n := range c.Notifications {
		if string(n.Name) == channel {
			said = n.Digest
		}
	}

	switch {
	case said == NoDigest:
		return ""
	case said != "":
		return said
	case slices.ContainsFunc(c.Jobs, func(j Job) bool {
		return j.Notify.Digested && On(j.Enabled) && slices.Contains(j.Notify.Channels, channel)
	}):
		return UsualDigest
	}
	return ""
}
