package config

import (
	"fmt"
	"slices"
	"time"
)

// UsualDigest is when a channel sends a summary each day of which nothing else is said, if jobs that run often leave
// their successes to it. NoDigest is said of one that is to send none.
const (
	UsualDigest = "daily at 08:00"
	NoDigest    = "off"
)

// oftenWithin is the gap between two instants of a schedule below which a success is no news.
const oftenWithin = time.Hour

// tells gives a job the outcomes that it tells about, where the configuration has none: of one that runs often those
// that need somebody, for nobody reads a message every five minutes.
func (c *Config) tells(d *decoder, i int) {
	j := &c.Jobs[i]
	if d.given(fmt.Sprintf("jobs[%d].notify.on", i)) {
		return
	}

	j.Notify.On = []string{"success", "error", "waiting"}
	if c.often(j) {
		j.Notify.On, j.Notify.Digested = []string{"error", "waiting"}, true
	}
}

// often says whether two instants of one of the job's schedules are less than an hour apart. It looks at a good number of
// them from a fixed day on, so that the same configuration means the same on each day.
func (c *Config) often(j *Job) bool {
	schedules, err := c.Schedules(j)
	if err != nil {
		return false // a wrong one is refused by the checks
	}

	for _, s := range schedules {
		last := s.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC))
		for range 100 {
			next := s.Next(last)
			if last.IsZero() || next.IsZero() {
				break
			}
			if next.Sub(last) < oftenWithin {
				return true
			}
			last = next
		}
	}
	return false
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
