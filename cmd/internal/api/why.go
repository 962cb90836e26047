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
	Node     string          `json:"node,omitempty"` // that did it, where several share the ledger: of the first attempt, or of the one that the line is about
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

// WhyFile is what a job that watches the folder of a file makes of it, and why.
type WhyFile struct {
	Job     string `json:"job"`
	Path    string `json:"path"`
	Verdict string `json:"verdict"` // taken, waits, left_out, none, whole
	Reason  string `json:"reason"`
	// Since is since when it waits.
	Since   Time           `json:"since"`
	Run     string         `json:"run"` // that took it last, "" where none has
	Outcome domain.Outcome `json:"outcome"`
}

// TimelineEntry is what happened beside the runs of a job and explains them: the daemon started,
// the clock was set, a pause began.
type TimelineEntry struct {
	At   Time   `json:"at"`
	What string `json:"what"` // daemon, clock, config, pause, file
	Did  string `json:"did"`
	Text string `json:"text"`
}
