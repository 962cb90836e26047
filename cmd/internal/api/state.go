package api

import (
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// State is what a simulation begins with: how far the jobs have been dealt with, what is
// planned, paused, and not finished yet.
type State struct {
	Now    Time           `json:"now"`
	Jobs   []JobState     `json:"jobs"`
	Pauses []ledger.Pause `json:"pauses"`
	Wakes  []ledger.Wake  `json:"slots"`
	Runs   []OpenRun      `json:"runs"`
}

// OpenRun is a run that is not finished.
type OpenRun struct {
	ID            string         `json:"id"`
	Job           string         `json:"job"`
	Agent         string         `json:"agent"`
	Trigger       domain.Trigger `json:"trigger"`
	State         domain.State   `json:"state"`
	WaitingFor    domain.Wait    `json:"waiting_for"`
	NotBefore     Time           `json:"not_before"`
	QueuedAt      Time           `json:"queued_at"`
	Attempt       int            `json:"attempt"`
	Interruptions int            `json:"interruptions"`
}

// JobState is how far a job's schedule has been dealt with.
type JobState struct {
	Name      string `json:"name"`
	Hash      string `json:"hash"`
	Anchor    Time   `json:"anchor"`
	Watermark Time   `json:"watermark"`
}
