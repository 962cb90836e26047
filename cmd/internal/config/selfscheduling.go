package config

import (
	"strings"
	"time"

	"rouse/agent/tool"
	"rouse/scheduler/schedule"
)

// selfScheduling limits the wakes that an agent plans. A nil pointer means the value of the mode.
type selfScheduling struct {
	Enabled     *bool     `key:"enabled" default:"true" say:"whether the block counts; without the block it is off"`
	Mode        string    `key:"mode" enum:"ambient|reactive|project|manual" default:"ambient" say:"in manual only the owner plans; the other modes set the limits below"`
	Horizon     *Duration `key:"horizon" positive:"yes" say:"a wake is at most this far ahead" unset:"the mode's: 7d, 24h, 30d, 7d"`
	MinInterval *Duration `key:"min_interval" say:"and at least this far; 0s is no limit" unset:"the mode's: 1h, 5m, 1h, 15m"`
	DailyCap    *int      `key:"daily_cap" say:"wakes that may start in 24 hours; 0 is no limit" unset:"the mode's: 6, 48, 4; in manual it does not count" eg:"3"`
	QuietHours  *string   `key:"quiet_hours" say:"hours like 22:00-07:00 of the daemon's time zone without wakes, or none" unset:"the mode's: 22:00-07:00 in ambient and project" eg:"'22:00-07:00'"`
	Days        []string  `key:"days" say:"days like mon, or mon-fri, of the daemon's time zone on which it may wake" unset:"all" eg:"[mon-fri]"`
	MaxChain    int       `key:"max_chain" positive:"yes" say:"wakes in a row without anything else that starts the agent" unset:"no limit" eg:"5"`
}

// fill gives what was left out the value of the mode, where it has an effect.
func (s *selfScheduling) fill() {
	if s == nil {
		return
	}

	limits, ok := schedule.Preset(schedule.Mode(s.Mode))
	if !ok {
		return // the decoder has said so
	}

	fill(&s.Horizon, Duration(limits.Horizon))
	// In manual the other limits do not hold, and config show should not print them.
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

// on reports whether an agent plans its own runs.
func (s *selfScheduling) on() bool { return s != nil && On(s.Enabled) }

// SelfScheduling returns the limits of the wakes that an agent plans, and false if it plans none.
func (c *Config) SelfScheduling(a *Agent) (schedule.Limits, bool) {
	s := a.SelfScheduling
	if !s.on() {
		return schedule.Limits{}, false
	}

	limits, ok := schedule.Preset(schedule.Mode(s.Mode))
	limits.Zone, limits.MaxChain = c.Zone(), s.MaxChain
	limits.Horizon = time.Duration(valueOr(s.Horizon, Duration(limits.Horizon)))
	limits.MinInterval = time.Duration(valueOr(s.MinInterval, Duration(limits.MinInterval)))
	limits.DailyCap = valueOr(s.DailyCap, limits.DailyCap)
	if s.QuietHours != nil {
		limits.Quiet, _ = schedule.ParseQuiet(*s.QuietHours) // a wrong one was refused
	}
	if s.Days != nil {
		limits.Days, _ = schedule.ParseDays(s.Days) // the same
	}
	return limits, ok
}

func (c *checker) selfScheduling(path string, a *Agent) {
	s := a.SelfScheduling
	if s == nil {
		return
	}

	if at := path + ".quiet_hours"; s.QuietHours != nil && c.hasNoProblem(at) {
		_, err := schedule.ParseQuiet(*s.QuietHours)
		c.schedule(at, "quiet_hours", err)
	}

	for at, day := range each(path+".days", s.Days) {
		if c.hasNoProblem(at) {
			_, err := schedule.ParseDays([]string{*day})
			c.schedule(at, "days", err)
		}
	}

	if at := path + ".days"; s.Days != nil && len(s.Days) == 0 && c.hasNoProblem(at) {
		c.bad(at, "is empty, which allows no day").Hint = "leave it out for all days; to let only the owner plan, write mode: manual"
	}

	if s.MinInterval != nil && s.Horizon != nil && *s.MinInterval > *s.Horizon && c.hasNoProblem(path+".horizon") {
		c.bad(path, "min_interval %s is longer than horizon %s", s.MinInterval, s.Horizon)
	}

	if s.on() {
		c.planner(path, a)
	}
}

// planner warns of settings that keep an agent from planning its own runs, or from being woken.
func (c *checker) planner(path string, a *Agent) {
	if a.Model == "" {
		c.warn(path, "a wake needs a model, and the agent %q has none: its wakes stay queued until one is configured under models:", a.Name)
	}

	if a.SelfScheduling.Mode == string(schedule.ModeManual) {
		for _, key := range []string{"min_interval", "daily_cap", "quiet_hours", "days", "max_chain"} {
			if c.d.given(path + "." + key) {
				c.warn(path+"."+key, "has no effect with mode: manual, in which only the owner plans")
			}
		}
		return
	}

	plans := c.toolsGiven(tool.RequiresSelfScheduling).Where(func(s tool.Spec) bool { return s.Writes == tool.WritesWake })
	if len(plans) > 0 && len(plans.Where(a.Tools.permits)) == 0 {
		c.warn(path, "the agent %q may not use %s (see its tools.allow and tools.deny), so that only its owner plans", a.Name, strings.Join(plans.Names(), " or "))
	}
}
