package api

import "rouse/internal/domain"

// Pause is a pause as `rouse pause --json` lists it.
type Pause struct {
	Scope  string `json:"scope"` // job, agent or all
	Name   string `json:"name"`  // "" for all
	Since  Time   `json:"since"`
	Until  Time   `json:"until"` // null: until somebody resumes
	Reason string `json:"reason"`
	By     string `json:"by"`
}

// PauseRequest asks for a pause: for a length of time, until a time, or until it is resumed.
type PauseRequest struct {
	Scope  string `json:"scope"`
	Name   string `json:"name,omitempty"`
	For    string `json:"for,omitempty"`
	Until  string `json:"until,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Paused is a pause that has just begun.
type Paused struct {
	Pause
	Zone    string   `json:"zone"`    // in which the time was read
	Running []string `json:"running"` // runs that are on, and go on
	Held    []Pause  `json:"held"`    // what holds the same thing too
}

// PauseEnd names the pause that is to end.
type PauseEnd struct {
	Scope string `json:"scope"`
	Name  string `json:"name,omitempty"`
}

// Resumed is what is left after a pause was ended.
type Resumed struct {
	Scope string  `json:"scope"`
	Name  string  `json:"name"`
	Zone  string  `json:"zone"`
	Held  []Pause `json:"held"` // what holds it still
}

// AgentWake is what an agent planned, and may plan.
type AgentWake struct {
	Agent    string `json:"agent"`
	Planning bool   `json:"self_scheduling"`
	Off      string `json:"off"` // why it plans nothing, and what to write to change that
	// Limits are those of its own plans; the horizon is also that of its owner's.
	Limits *WakeLimits `json:"limits" jsonschema:"nullable"`
	// Left is how many wakes may still start within 24 hours, null when there is no limit.
	Left   *int   `json:"left_today" jsonschema:"nullable"`
	Paused string `json:"paused"`
	Wake   *Wake  `json:"slot" jsonschema:"nullable"` // null: nothing is planned
	Zone   string `json:"zone"`
}

// WakeLimits bound the wakes that an agent plans. A length of 0s and a number of 0 are no limit.
type WakeLimits struct {
	Mode        string   `json:"mode"`
	Horizon     string   `json:"horizon"`
	MinInterval string   `json:"min_interval"`
	DailyCap    int      `json:"daily_cap"`
	QuietHours  string   `json:"quiet_hours"`
	Days        []string `json:"days"`
	MaxChain    int      `json:"max_chain"`
}

// Wake is an agent's next wake as it was planned.
type Wake struct {
	At           Time          `json:"at"`
	Asked        Time          `json:"asked"` // before it was moved
	Instructions string        `json:"instructions"`
	ContextViews []string      `json:"context_views"`
	Priority     string        `json:"priority"`
	OnMiss       domain.OnMiss `json:"on_miss"`
	ScheduledBy  string        `json:"scheduled_by"`
	Run          string        `json:"run"` // that planned it, "" when none did
	Job          string        `json:"job"` // at the beginning of the chain of wakes
	Depth        int           `json:"depth"`
	CreatedAt    Time          `json:"created_at"`
}

// WakeRequest asks for an agent's next wake, at a time or in a length of time.
type WakeRequest struct {
	Agent        string        `json:"agent"`
	At           string        `json:"at,omitempty"`
	In           string        `json:"in,omitempty"`
	Instructions string        `json:"instructions,omitempty"`
	Priority     string        `json:"priority,omitempty"`
	OnMiss       domain.OnMiss `json:"on_miss,omitempty"`
}

// AgentName names an agent.
type AgentName struct {
	Agent string `json:"agent"`
}

// PlannedWake is what became of a SlotAsk.
type PlannedWake struct {
	AgentWake
	Clamped      bool     `json:"clamped"`
	ClampReasons []string `json:"clamp_reasons"`
	Warnings     []string `json:"warnings"`
}

// CancelledWake is a wake that was cancelled.
type CancelledWake struct {
	Agent     string `json:"agent"`
	Cancelled bool   `json:"cleared"`
	Wake      *Wake  `json:"slot" jsonschema:"nullable"`
	Zone      string `json:"zone"`
}
