package config

import (
	"slices"

	"rouse/internal/domain"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
)

// UsualDigest is the default time of the digest for frequent jobs. NoDigest turns the digest off.
const (
	UsualDigest = "daily at 08:00"
	NoDigest    = "off"
)

// tells sets the channels and outcomes of notices that are not configured. A job that runs more
// often than hourly leaves its successes to the digest.
func (c *checker) tells(path string, j *Job) {
	at := path + ".notify.channels"
	if a := c.agent(j); !c.d.given(at) || c.d.place(at) == c.d.place("defaults.notify.channels") {
		j.Notify.Channels = c.cfg.DefaultChannels()
		if a != nil && a.Channels != nil {
			j.Notify.Channels = a.Channels
		}
	}

	if at := path + ".notify.on"; c.d.given(at) {
		c.warnFailures(at, j.Notify.On)
		return
	}

	j.Notify.On = []string{"success", domain.Failure, "waiting"}
	// What dates and calendars leave out changes nothing: the same configuration means the same on each day.
	if slices.ContainsFunc(j.schedules, (*schedule.Schedule).MoreThanHourly) {
		j.Notify.On, j.Notify.Digested = []string{domain.Failure, "waiting"}, true
	}
}

// warnFailures warns of a list with error but without other failures, such as timeout.
func (c *checker) warnFailures(path string, on []string) {
	if !slices.Contains(on, string(domain.OutcomeError)) || slices.Contains(on, domain.Failure) {
		return
	}

	var missing []string
	for _, o := range domain.Outcomes() {
		if o.OpensIncident() && !slices.Contains(on, string(o)) {
			missing = append(missing, string(o))
		}
	}
	if len(missing) > 0 {
		c.warn(path, "error does not include %s: a run that ends like that sends no notice", text.List(missing, len(missing))).Hint =
			"write failure instead of error to get a notice for each failed run"
	}
}

// DefaultChannels returns the channels of jobs without channels: those of defaults, or the first.
// If it is nil, notices go to the desktop if there is a session.
func (c *Config) DefaultChannels() []string {
	switch {
	case c.Defaults != nil && c.Defaults.Notify.Channels != nil:
		return c.Defaults.Notify.Channels
	case len(c.Notifications) > 0:
		return []string{string(c.Notifications[0].Name)}
	}
	return nil
}

// Names reports whether the configuration names a channel anywhere.
func (c *Config) Names(channel string) bool {
	named := slices.Contains(c.DefaultChannels(), channel)
	for _, n := range c.Notifications {
		named = named || string(n.Name) == channel || string(n.Fallback) == channel
	}
	for i := range c.Agents {
		named = named || slices.Contains(c.Agents[i].Channels, channel)
	}
	for i := range c.Jobs {
		named = named || slices.Contains(c.Jobs[i].Notify.Channels, channel)
	}
	return named
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
		return j.Notify.Digested && On(j.Enabled) && (slices.Contains(j.Notify.Channels, channel) || j.Notify.Channels == nil && channel == DefaultChannel)
	}):
		return UsualDigest
	}
	return ""
}
