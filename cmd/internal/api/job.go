package api

import "rouse/internal/domain"

// Job is a job with its triggers in words and its last and next run.
type Job struct {
	Name        string         `json:"name"`
	Agent       string         `json:"agent"`
	Enabled     bool           `json:"enabled"`
	Triggers    []string       `json:"triggers"`
	Scheduled   bool           `json:"scheduled"` // a clock starts it
	Next        Time           `json:"next"`
	LastRun     string         `json:"last_run"`
	LastState   domain.State   `json:"last_state"`
	LastOutcome domain.Outcome `json:"last_outcome"`
	LastAt      Time           `json:"last_at"`
	Paused      bool           `json:"paused"`
	// PausedUntil is null when the job stays paused until somebody resumes it.
	PausedUntil Time   `json:"paused_until"`
	PausedWhy   string `json:"paused_reason"`
	Problem     string `json:"problem"`
	// Incidents are the kinds of error that it fails with now.
	Incidents []Incident `json:"incidents"`
	// Blocked says that no run of it can start now; Obstacles are why, none where it can.
	Blocked   bool       `json:"blocked"`
	Obstacles []Obstacle `json:"obstacles"`
	Watch     *Watch     `json:"watch" jsonschema:"nullable"` // null without one
}

// Obstacle is one thing that keeps a job from working, before it costs anything.
type Obstacle struct {
	// Kind is a stable word for programs: secret, model, no_model, model_paused, folder, program, mcp, confinement, skill, database,
	// workspace, agent.
	Kind   string `json:"kind"`
	Source string `json:"source"` // what is in the way, the same for all jobs that wait for it
	Text   string `json:"text"`   // what is wrong, and what to do
	Where  string `json:"where"`  // file:line of the configuration, "" where it is not known
}

// Agent is an agent of the configuration.
type Agent struct {
	Name     string   `json:"name"`
	Enabled  bool     `json:"enabled"`
	Model    string   `json:"model"` // by its configured name, "" without one
	Mode     string   `json:"mode"`  // isolated, folder or none: where it works
	Workdir  string   `json:"workdir"`
	Database bool     `json:"database"`
	Jobs     []string `json:"jobs"`
}

// Watch is the watch of a job. What it is doing is known only while a daemon runs.
type Watch struct {
	Path      string `json:"path"`
	Mode      string `json:"mode"`
	State     string `json:"state"`
	Waiting   int    `json:"waiting"` // files
	Round     int    `json:"round"`   // of converge
	Rescanned Time   `json:"rescanned"`
	Handover  Time   `json:"handover"` // next handover of a collecting watch
	Degraded  string `json:"degraded"`
	Problem   string `json:"problem"`
	// Waits are files that look complete and are not taken, the oldest first.
	Waits []WatchWait `json:"waits,omitempty"`
}

// WatchWait is such a file: why, since when, and the run that failed with the same bytes, if it waits for that.
type WatchWait struct {
	Path  string `json:"path"`
	Why   string `json:"why"`
	Since Time   `json:"since"`
	Run   string `json:"run,omitempty"`
}

// Definition is a job as it is in its file, without secrets.
type Definition struct {
	File string
	Line int
	Text string
}

// Occurrence is one coming instant of a job, or a wake that an agent planned.
type Occurrence struct {
	Job      string          `json:"job"`
	Agent    string          `json:"agent,omitempty"`
	Source   string          `json:"source"`
	Nominal  Time            `json:"nominal"`
	Actual   Time            `json:"actual"`
	Decision domain.Decision `json:"decision"`
	Reason   string          `json:"reason"`
	Run      string          `json:"run,omitempty"`
	Outcome  domain.Outcome  `json:"outcome,omitempty"`
}
