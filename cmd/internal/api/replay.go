package api

import "rouse/internal/domain"

// Replay is what came of playing a run again as its job is configured now.
type Replay struct {
	Run         string             `json:"run"`
	Job         string             `json:"job"`
	Agent       string             `json:"agent"`
	Exchanges   int                `json:"exchanges"` // with a model, that were recorded
	Calls       int                `json:"calls"`     // that were recorded
	Attempts    int                `json:"attempts"`
	Same        bool               `json:"same"`
	Unknown     string             `json:"unknown,omitempty"` // why it was not played to its end
	Differences []ReplayDifference `json:"differences"`
	Recorded    ReplayEnding       `json:"recorded"`
	Now         ReplayEnding       `json:"now"`
}

// ReplayDifference is one thing that is different now.
type ReplayDifference struct {
	Attempt  int    `json:"attempt,omitempty"`
	Step     int    `json:"step,omitempty"` // 0: the end
	What     string `json:"what"`
	Recorded string `json:"recorded"`
	Now      string `json:"now"`
}

// ReplayEnding is how a run ended, and what it took.
type ReplayEnding struct {
	Outcome      domain.Outcome `json:"outcome"`
	Exit         domain.Exit    `json:"exit"`
	Verified     bool           `json:"verified"`
	Summary      string         `json:"summary,omitempty"`
	Error        string         `json:"error,omitempty"`
	Steps        int            `json:"steps"`
	Calls        int            `json:"calls"`
	Tokens       int64          `json:"tokens"`
	CostMicroUSD int64          `json:"cost_micro_usd"`
}
