package api

import "rouse/internal/domain"

// Pause is a pause, as listed by `rouse pause --json`.
type Pause struct {
	Scope  string `json:"scope"` // job, agent or all
	Name   string `json:"name"`  // empty for all
	Since  Time   `json:"since"`
	Until  Time   `json:"until"` // null if it lasts until it is resumed
	Reason string `json:"reason"`
	By     string `json:"by"`
}

// PauseRequest requests a pause for a duration, until a time, or until it is resumed.
type PauseRequest struct {
	Scope  string `json:"scope"`
	Name   string `json:"name,omitempty"`
	For    string `json:"for,omitempty"`
	Until  string `json:"until,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Paused is the result of a PauseRequest.
type Paused struct {
	Pause
	Zone    string   `json:"zone"`    // time zone used to parse the time
	Running []string `json:"running"` // runs that are running and continue
	Held    []Pause  `json:"held"`    // other pauses that apply too
}

// PauseEnd identifies the pause to end.
type PauseEnd struct {
	Scope string `json:"scope"`
	Name  string `json:"name,omitempty"`
}

// Resumed is the result of ending a pause.
type Resumed struct {
	Scope string  `json:"scope"`
	Name  string  `json:"name"`
	Zone  string  `json:"zone"`
	Held  []Pause `json:"held"` // pauses that still apply
}

// AgentWake holds the planned wake of an agent and its planning limits.
type AgentWake struct {
	Agent    string `json:"agent"`
	Planning bool   `json:"self_scheduling"`
	Off      string `json:"off"` // why the agent cannot plan wakes, with a remedy
	// Limits apply to the agent's own plans. The horizon also applies to the owner's.
	Limits *WakeLimits `json:"limits" jsonschema:"nullable"`
	// Left is the number of wakes that may still start within 24 hours, or null if there is no
	// limit.
	Left   *int   `json:"left_today" jsonschema:"nullable"`
	Paused string `json:"paused"`
	Wake   *Wake  `json:"slot" jsonschema:"nullable"` // null if no wake is planned
	Zone   string `json:"zone"`
}

// WakeLimits holds the limits for wakes that an agent plans. 0s and 0 mean no limit.
type WakeLimits struct {
	Mode        string   `json:"mode"`
	Horizon     string   `json:"horizon"`
	MinInterval string   `json:"min_interval"`
	DailyCap    int      `json:"daily_cap"`
	QuietHours  string   `json:"quiet_hours"`
	Days        []string `json:"days"`
	MaxChain    int      `json:"max_chain"`
}

// Wake is the next planned wake of an agent.
type Wake struct {
	At           Time          `json:"at"`
	Asked        Time          `json:"asked"` // requested time, before adjustments
	Instructions string        `json:"instructions"`
	ContextViews []string      `json:"context_views"`
	Priority     string        `json:"priority"`
	OnMiss       domain.OnMiss `json:"on_miss"`
	ScheduledBy  string        `json:"scheduled_by"`
	Run          string        `json:"run"` // run that planned the wake; empty if it was not planned by a run
	Job          string        `json:"job"` // job that started the chain of wakes
	Depth        int           `json:"depth"`
	CreatedAt    Time          `json:"created_at"`
}

// WakeRequest requests the next wake of an agent, at a time or after a duration.
type WakeRequest struct {
	Agent        string        `json:"agent"`
	At           string        `json:"at,omitempty"`
	In           string        `json:"in,omitempty"`
	Instructions string        `json:"instructions,omitempty"`
	Priority     string        `json:"priority,omitempty"`
	OnMiss       domain.OnMiss `json:"on_miss,omitempty"`
}

// AgentName identifies an agent.
type AgentName struct {
	Agent string `json:"agent"`
}

// PlannedWake is the result of a WakeRequest.
type PlannedWake struct {
	AgentWake
	Clamped      bool     `json:"clamped"`
	ClampReasons []string `json:"clamp_reasons"`
	Warnings     []string `json:"warnings"`
}

// CancelledWake is the result of canceling a wake.
type CancelledWake struct {
	Agent     string `json:"agent"`
	Cancelled bool   `json:"cleared"`
	Wake      *Wake  `json:"slot" jsonschema:"nullable"`
	Zone      string `json:"zone"`
}
