package config

import (
	"slices"
)

// UsualDigest is the default for channels of frequent jobs. NoDigest turns the digest off.
const (
	UsualDigest = "daily at 08:00"
	NoDigest    = "off"
)

// DefaultChannels returns the channels for jobs without channels: those of defaults, or the first
// one. It returns nil if no channel is configured. Then notices go to the desktop session, if any.
func (c *Config) DefaultChannels() []string {
	switch {
	case c.Defaults != nil && c.Defaults.Notify.Channels != nil:
		return c.Defaults.Notify.Channels
	case len(c.Notifications) > 0:
		return []string{string(c.Notifications[0].Name)}
	}
	return nil
}

// Names reports whether the configuration mentions a channel.
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

// DigestOf returns the time of a channel's daily digest, or "" if the channel sends no digest.
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
