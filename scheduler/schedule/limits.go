package schedule

import (
	"cmp"
	"fmt"
	"time"

	"rouse/internal/text"
)

// Mode is a preset of the limits for wakes that an agent plans.
type Mode string

// The modes. In manual mode, only the owner can plan wakes.
const (
	ModeAmbient  Mode = "ambient"
	ModeReactive Mode = "reactive"
	ModeProject  Mode = "project"
	ModeManual   Mode = "manual"
)

// allDays is the mask of all days of the week.
const allDays = 1<<7 - 1

// Limits restrict the wakes that an agent plans.
type Limits struct {
	Mode Mode
	// Horizon and MinInterval are the maximum and minimum time until a wake. Zero means no limit.
	Horizon, MinInterval time.Duration
	// DailyCap is the maximum number of wakes that start within 24 hours. Zero means no limit,
	// except in manual mode.
	DailyCap int
	Quiet    Quiet          // zero value means none
	Days     uint8          // bit mask: Sunday 1 … Saturday 64; 127 for all
	Zone     *time.Location // zone of quiet hours and days; nil means UTC
	// MaxChain is the maximum number of consecutive wakes that were planned by wakes. Zero means no
	// limit.
	MaxChain int
}

// Preset returns the limits of a mode, or false if the mode does not exist.
func Preset(m Mode) (Limits, bool) {
	const day = 24 * time.Hour
	night := Quiet{From: 22 * 60, To: 7 * 60}
	switch m {
	case ModeAmbient:
		return Limits{Mode: m, Horizon: 7 * day, MinInterval: time.Hour, DailyCap: 6, Quiet: night, Days: allDays}, true
	case ModeReactive:
		return Limits{Mode: m, Horizon: day, MinInterval: 5 * time.Minute, DailyCap: 48, Days: allDays}, true
	case ModeProject:
		return Limits{Mode: m, Horizon: 30 * day, MinInterval: time.Hour, DailyCap: 4, Quiet: night, Days: allDays}, true
	case ModeManual:
		return Limits{Mode: m, Horizon: 7 * day, MinInterval: 15 * time.Minute, Days: allDays}, true
	}

	return Limits{}, false
}

// WakeRequest is a request for a wake.
type WakeRequest struct {
	At time.Time
	// ByUser marks a request of the owner. Only the horizon applies to it.
	ByUser bool
	// Depth is the number of consecutive wakes that led to the requesting run. It is 0 if another
	// trigger started the run.
	Depth int
}

// Usage is the current state in the ledger.
type Usage struct {
	Started int // wakes started in the last 24 h, regardless of their outcome
	Paused  bool
}

// Reasons for moving or rejecting a wake.
const (
	ReasonManual      = "mode_manual"
	ReasonDailyCap    = "daily_cap"
	ReasonPaused      = "paused"
	ReasonChain       = "max_chain"
	ReasonMinInterval = "min_interval"
	ReasonHorizon     = "max_horizon"
	ReasonQuiet       = "quiet_hours"
	ReasonDay         = "day_not_allowed"
)

// ClampResult is the decision about a WakeRequest.
type ClampResult struct {
	At       time.Time // in UTC, not before now; zero if rejected
	Reasons  []string  // one per move, in order; or the reason for the rejection
	Rejected bool
}

// Clamp moves a requested wake inside the limits or rejects it. It makes a single pass, so a later
// step may move the wake past the horizon again. A time in the past becomes now without a reason,
// even for the owner.
func (l Limits) Clamp(now time.Time, ask WakeRequest, u Usage) ClampResult {
	if reason := l.rejection(ask, u); reason != "" {
		return ClampResult{Reasons: []string{reason}, Rejected: true}
	}

	c := ClampResult{At: ask.At.UTC()}
	if c.At.Before(now) {
		c.At = now.UTC()
	}
	move := func(reason string, to time.Time) {
		c.At, c.Reasons = to.UTC(), append(c.Reasons, reason)
	}
	if first := now.Add(l.MinInterval); !ask.ByUser && c.At.Before(first) {
		move(ReasonMinInterval, first)
	}
	if last := now.Add(l.Horizon); l.Horizon > 0 && c.At.After(last) {
		move(ReasonHorizon, last)
	}
	if !ask.ByUser && l.Quiet.holds(c.At.In(l.zone())) {
		move(ReasonQuiet, l.Quiet.End(c.At, l.zone()))
	}
	if !ask.ByUser && !l.onAllowedDay(c.At) {
		move(ReasonDay, l.nextAllowedDay(c.At))
	}
	return c
}

// rejection returns the reason to reject a request regardless of its time, or "".
func (l Limits) rejection(ask WakeRequest, u Usage) string {
	switch {
	case ask.ByUser:
		return ""
	case l.Mode == ModeManual:
		return ReasonManual
	case l.WakesLeft(u) == 0:
		return ReasonDailyCap
	case u.Paused:
		return ReasonPaused
	case l.MaxChain > 0 && ask.Depth >= l.MaxChain:
		return ReasonChain
	case l.Days&allDays == 0:
		return ReasonDay
	}
	return ""
}

// WakesLeft returns the number of wakes that may still start today. It returns -1 for no limit and
// 0 in manual mode.
func (l Limits) WakesLeft(u Usage) int {
	switch {
	case l.Mode == ModeManual:
		return 0
	case l.DailyCap <= 0:
		return -1
	}
	return max(0, l.DailyCap-u.Started)
}

func (l Limits) zone() *time.Location { return cmp.Or(l.Zone, time.UTC) }

func (l Limits) onAllowedDay(t time.Time) bool { return l.Days>>t.In(l.zone()).Weekday()&1 == 1 }

// nextAllowedDay returns the local time of t on the next allowed day, at most two weeks ahead.
func (l Limits) nextAllowedDay(t time.Time) time.Time {
	local := t.In(l.zone())
	for n := 1; n <= 14; n++ {
		d := dateOf(local).add(n)
		moved := resolve(d, local.Hour(), local.Minute(), local.Second(), l.zone()).Add(time.Duration(local.Nanosecond()))
		if d.exists(l.zone()) && l.onAllowedDay(moved) {
			return moved
		}
	}

	return t
}

// Warning returns a sentence about one reason of a decision, for models and people.
func Warning(reason string, l Limits, c ClampResult) string {
	moved := func(why string, a ...any) string {
		return fmt.Sprintf(why, a...) + "; the wake is now planned for " + c.At.In(l.zone()).Format("Mon 2006-01-02 15:04 MST") + "."
	}
	switch reason {
	case ReasonManual:
		return "Not planned: in manual mode only the owner plans when this agent wakes."
	case ReasonDailyCap:
		return fmt.Sprintf("Not planned: this agent may wake itself %d times in 24 hours, and has.", l.DailyCap)
	case ReasonPaused:
		return "Not planned: this agent is paused until its owner resumes it or the pause ends."
	case ReasonChain:
		return fmt.Sprintf("Not planned: this agent woke itself %s in a row; something else has to start it before it may plan a wake again.", times(l.MaxChain))
	case ReasonMinInterval:
		return moved("A wake must be at least %s from now", text.FormatSpan(l.MinInterval))
	case ReasonHorizon:
		return moved("A wake can be at most %s from now", text.FormatSpan(l.Horizon))
	case ReasonQuiet:
		return moved("This agent does not wake itself in its quiet hours, %s", l.Quiet)
	case ReasonDay:
		if l.Days&allDays == 0 {
			return "Not planned: no day of the week is allowed for this agent to wake itself."
		}
		return moved("This agent wakes itself only on %s", list(values(uint64(l.Days), 7), dayNames))
	}

	return "The wake was changed: " + reason + "."
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
