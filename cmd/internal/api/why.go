package api

import "rouse/internal/domain"

// Why accounts for the instants of a job.
type Why struct {
	Job  string `json:"job"`
	Zone string `json:"zone"`
	// Notes are sentences about the job, and about the time that was asked for.
	Notes   []string        `json:"notes"`
	Lines   []Explanation   `json:"lines"`
	Between []TimelineEntry `json:"between"`
}

// Explanation is one instant of a job, or one run of it by another trigger, with what became
// of it and why. Decision is "" while nothing has been decided.
type Explanation struct {
	Job      string          `json:"job"`
	Source   string          `json:"source"`
	Nominal  Time            `json:"nominal"`
	Actual   Time            `json:"actual"`
	Decision domain.Decision `json:"decision"`
	Reason   string          `json:"reason"`
	Run      string          `json:"run"`
	Outcome  domain.Outcome  `json:"outcome"`
	// State and WaitingFor are those of the run.
	State      domain.State `json:"state,omitempty"`
	WaitingFor domain.Wait  `json:"waiting_for,omitempty"`
	// Asked marks what stands at the time that was asked for.
	Asked bool `json:"asked,omitempty"`
	// Through is the last instant of a row that stands for many, and Instants how many they
	// are, when they were counted.
	Through  Time `json:"through,omitzero"`
	Instants int  `json:"instants,omitempty"`
}

// TimelineEntry is what happened beside the runs of a job and explains them: the daemon started,
// the clock was set, a pause began.
type TimelineEntry struct {
	At   Time   `json:"at"`
	What string `json:"what"` // daemon, clock, config, pause, file
	Did  string `json:"did"`
	Text string `json:"text"`
}
