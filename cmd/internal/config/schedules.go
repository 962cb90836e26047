package config

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"rouse/scheduler/schedule"
)

// SetMachineZone sets the machine's time zone, which applies unless timezone is configured.
func (c *Config) SetMachineZone(zone *time.Location) { c.machine = zone }

// Zone returns the daemon's time zone.
func (c *Config) Zone() *time.Location {
	if c.Timezone != "" {
		if z, err := schedule.Zone(c.Timezone); err == nil { // the check has refused invalid zones
			return z
		}
	}
	return cmp.Or(c.machine, time.Local)
}

// InZone returns a copy of the configuration for another time zone of the machine.
func (c *Config) InZone(machine *time.Location) *Config {
	next := *c
	next.machine, next.Jobs = machine, slices.Clone(c.Jobs)
	for i := range next.Jobs {
		next.Jobs[i].schedules = nil
		next.Jobs[i].schedules, _ = next.parseSchedules(&next.Jobs[i]) // ignore the error: Schedules returns it again
	}
	return &next
}

// ZoneOf returns the time zone of a job.
func (c *Config) ZoneOf(j *Job) *time.Location {
	if z, err := schedule.Zone(j.Timezone); j.Timezone != "" && err == nil { // the check has refused invalid zones
		return z
	}
	return c.Zone()
}

// PastAt returns the time of the job's at: and reports whether it is in the past.
func (j *Job) PastAt(now time.Time) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, j.RunAt)
	return at, err == nil && at.Before(now)
}

// Expired reports whether the job's at: is in the past and the job has no other trigger.
func (j *Job) Expired(now time.Time) bool {
	_, past := j.PastAt(now)
	return past && On(j.Enabled) && len(Timings(j)) == 1 && !j.RunOnStart && j.Watch == nil && j.Webhook == nil && len(j.Follows) == 0
}

// Timing is a schedule as configured, with its key.
type Timing struct {
	Key string
	schedule.Options
}

// Timings returns the schedules of a job as configured.
func Timings(j *Job) (out []Timing) {
	add := func(key string, o schedule.Options) {
		if o.Cron+o.Every+o.At+o.Window != "" {
			out = append(out, Timing{key, o})
		}
	}

	add("at", schedule.Options{At: j.RunAt})
	add("every", schedule.Options{Every: j.Every})
	add("schedule", schedule.Options{Cron: j.Schedule})
	if w := j.Window; w != nil && w.From != "" && w.To != "" { // an incomplete window was reported
		add("window", schedule.Options{Window: w.From + "-" + w.To, Days: w.Days})
	}
	return out
}

// Scheduled reports whether the job has a schedule.
func (j *Job) Scheduled() bool { return len(Timings(j)) > 0 }

// Schedules returns the schedules of a job of a checked configuration. The order is the same after
// a reload.
func (c *Config) Schedules(j *Job) ([]*schedule.Schedule, error) {
	if j.schedules != nil {
		return j.schedules, nil
	}
	return c.parseSchedules(j)
}

// KeptSchedules returns the schedules that SetSchedules has stored.
func (j *Job) KeptSchedules() []*schedule.Schedule { return j.schedules }

// SetSchedules parses the schedules of a job and stores them for Schedules.
func (c *Config) SetSchedules(j *Job) ([]*schedule.Schedule, error) {
	out, err := c.parseSchedules(j)
	if err == nil {
		j.schedules = out
	}
	return out, err
}

func (c *Config) parseSchedules(j *Job) (out []*schedule.Schedule, err error) {
	for _, s := range Timings(j) {
		o := s.Options
		o.Timezone, o.Location, o.Job = j.Timezone, c.Zone(), string(j.Name)
		o.Follows = j.Timezone == "" && c.Timezone == ""
		o.Exclude, o.Only, o.Calendar = j.Exclude, j.Only, c.CalendarOf
		if o.Window == "" {
			o.Jitter = time.Duration(j.Jitter)
		}

		parsed, err := schedule.Parse(o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Key, err)
		}
		out = append(out, parsed)
	}
	return out, nil
}
