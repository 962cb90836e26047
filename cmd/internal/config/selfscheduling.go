package config

import (
	"time"

	"rouse/scheduler/schedule"
)

// selfScheduling limits the wakes that an agent plans. A nil pointer means the default of the
// mode.
type selfScheduling struct {
	Enabled     *bool     `key:"enabled" default:"true" doc:"whether the block counts; without the block it is off"`
	Mode        string    `key:"mode" enum:"ambient|reactive|project|manual" default:"ambient" doc:"in manual only the owner plans; the other modes set the limits below"`
	Horizon     *Duration `key:"horizon" positive:"yes" doc:"a wake is at most this far ahead" defaultdoc:"the mode's: 7d, 24h, 30d, 7d"`
	MinInterval *Duration `key:"min_interval" doc:"and at least this far; 0s is no limit" defaultdoc:"the mode's: 1h, 5m, 1h, 15m"`
	DailyCap    *int      `key:"daily_cap" doc:"wakes that may start in 24 hours; 0 is no limit" defaultdoc:"the mode's: 6, 48, 4; in manual it does not count" example:"3"`
	QuietHours  *string   `key:"quiet_hours" doc:"hours like 22:00-07:00 of the daemon's time zone without wakes, or none" defaultdoc:"the mode's: 22:00-07:00 in ambient and project" example:"'22:00-07:00'"`
	Days        []string  `key:"days" doc:"days like mon, or mon-fri, of the daemon's time zone on which it may wake" defaultdoc:"all" example:"[mon-fri]"`
	MaxChain    int       `key:"max_chain" positive:"yes" doc:"wakes in a row without anything else that starts the agent" defaultdoc:"no limit" example:"5"`
}

// Fill sets missing values to the defaults of the mode if they have an effect.
func (s *selfScheduling) Fill() {
	if s == nil {
		return
	}

	limits, ok := schedule.Preset(schedule.Mode(s.Mode))
	if !ok {
		return // the decoder has reported the problem
	}

	fill(&s.Horizon, Duration(limits.Horizon))
	// In manual the other limits do not apply, so config show must not print them.
	if limits.Mode == schedule.ModeManual {
		return
	}

	fill(&s.MinInterval, Duration(limits.MinInterval))
	fill(&s.DailyCap, limits.DailyCap)
	fill(&s.QuietHours, limits.Quiet.String())
	if s.Days == nil {
		s.Days = []string{"sun-sat"}
	}
}

func fill[T any](into **T, with T) {
	if *into == nil {
		*into = &with
	}
}

func valueOr[T any](p *T, other T) T {
	if p == nil {
		return other
	}
	return *p
}

// On reports whether the agent may plan its own runs.
func (s *selfScheduling) On() bool { return s != nil && On(s.Enabled) }

// SelfScheduling returns the limits for wakes that the agent plans, or false if it may not plan
// any.
func (c *Config) SelfScheduling(a *Agent) (schedule.Limits, bool) {
	s := a.SelfScheduling
	if !s.On() {
		return schedule.Limits{}, false
	}

	limits, ok := schedule.Preset(schedule.Mode(s.Mode))
	limits.Zone, limits.MaxChain = c.Zone(), s.MaxChain
	limits.Horizon = time.Duration(valueOr(s.Horizon, Duration(limits.Horizon)))
	limits.MinInterval = time.Duration(valueOr(s.MinInterval, Duration(limits.MinInterval)))
	limits.DailyCap = valueOr(s.DailyCap, limits.DailyCap)
	if s.QuietHours != nil {
		limits.Quiet, _ = schedule.ParseQuiet(*s.QuietHours) // the check has refused invalid values
	}
	if s.Days != nil {
		limits.Days, _ = schedule.ParseDays(s.Days) // the check has refused invalid values
	}
	return limits, ok
}
