package api

import (
	"fmt"
	"time"

	"rouse/internal/domain"
	"rouse/internal/text"
)

// Job is a job with its triggers, its last run and its next run.
type Job struct {
	Name        string         `json:"name"`
	Agent       string         `json:"agent"`
	Enabled     bool           `json:"enabled"`
	Triggers    []string       `json:"triggers"`
	Scheduled   bool           `json:"scheduled"` // has a schedule
	Next        Time           `json:"next"`
	LastRun     string         `json:"last_run"`
	LastState   domain.State   `json:"last_state"`
	LastOutcome domain.Outcome `json:"last_outcome"`
	LastAt      Time           `json:"last_at"`
	Paused      bool           `json:"paused"`
	// PausedUntil is null if the pause lasts until the job is resumed.
	PausedUntil Time   `json:"paused_until"`
	PausedWhy   string `json:"paused_reason"`
	Problem     string `json:"problem"`
	// Incidents lists the open incidents of the job.
	Incidents []Incident `json:"incidents"`
	// Blocked means that no run can start now. Obstacles lists the reasons.
	Blocked   bool       `json:"blocked"`
	Obstacles []Obstacle `json:"obstacles"`
	Watch     *Watch     `json:"watch" jsonschema:"nullable"` // null if the job has no watch
}

// Obstacle is a reason why a job cannot work, detected before it causes costs.
type Obstacle struct {
	// Kind identifies the type of the obstacle: secret, model, no_model, model_paused, folder,
	// program, mcp, confinement, skill, database, workspace or agent.
	Kind   string `json:"kind"`
	Source string `json:"source"` // cause of the obstacle, the same for all affected jobs
	Text   string `json:"text"`   // description and remedy
	Where  string `json:"where"`  // file:line in the configuration; empty if unknown
}

// Agent is a configured agent.
type Agent struct {
	Name     string   `json:"name"`
	Enabled  bool     `json:"enabled"`
	Model    string   `json:"model"` // configured name; empty if there is no model
	Mode     string   `json:"mode"`  // place where the agent works: isolated, folder or none
	Workdir  string   `json:"workdir"`
	Database bool     `json:"database"`
	Jobs     []string `json:"jobs"`
}

// Watch is the watch of a job. Its state is known only while a daemon runs.
type Watch struct {
	Path      string `json:"path"`
	Mode      string `json:"mode"`
	State     string `json:"state"`
	Waiting   int    `json:"waiting"` // number of files
	Round     int    `json:"round"`   // round of a converge watch
	Rescanned Time   `json:"rescanned"`
	Handover  Time   `json:"handover"` // next handover of a collecting watch
	Degraded  string `json:"degraded"`
	Problem   string `json:"problem"`
	// Waits lists complete files that are not processed yet, oldest first.
	Waits []WatchWait `json:"waits,omitempty"`
}

// WatchWait is a waiting file. Run is the failed run with the same content, if the file waits
// because of it.
type WatchWait struct {
	Path  string `json:"path"`
	Why   string `json:"why"`
	Since Time   `json:"since"`
	Run   string `json:"run,omitempty"`
}

// Definition is a job as written in its file, without secrets.
type Definition struct {
	File string
	Line int
	Text string
}

// Occurrence is a future scheduled time of a job, or a wake planned by an agent.
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

// BackfillRequest requests runs for past scheduled times of a job.
type BackfillRequest struct {
	From   string `json:"from"` // as entered by a person
	To     string `json:"to"`   // inclusive; a date includes the whole day; empty means now
	DryRun bool   `json:"dry_run"`
}

// Backfill is the result of a backfill, or the expected result of a dry run.
type Backfill struct {
	Job    string `json:"job"`
	Zone   string `json:"zone"`
	From   Time   `json:"from"`
	To     Time   `json:"to"`
	DryRun bool   `json:"dry_run"`
	Runs   int    `json:"runs"` // number of runs
	// ForecastUSD is the expected cost, based on the median of the job's last runs. It does not
	// include RunsUnforeseen runs.
	ForecastUSD    float64           `json:"forecast_usd"`
	RunsUnforeseen int               `json:"runs_unforeseen"`
	Instants       []BackfillInstant `json:"instants"`
}

// BackfillInstant is a scheduled time of a backfill. Run is its run, if there is one.
type BackfillInstant struct {
	Nominal Time           `json:"nominal"`
	Source  string         `json:"source"`
	Runs    bool           `json:"runs"` // part of this backfill
	Reason  string         `json:"reason"`
	Run     string         `json:"run,omitempty"`
	Outcome domain.Outcome `json:"outcome,omitempty"`
}

// Calendar is the state of a configured calendar.
type Calendar struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"`       // holidays, file or url
	Times     int    `json:"times"`      // number of entries within some years around now
	FetchedAt Time   `json:"fetched_at"` // last successful fetch; null if there was no fetch
	ChangedAt Time   `json:"changed_at"` // last time the content changed
	Problem   string `json:"problem"`    // error of the last fetch; empty if it succeeded
}

// Text describes the calendar in one sentence, with the age of its copy.
func (c Calendar) Text(now time.Time) string {
	said := fmt.Sprintf("calendar %s (%s): %s", c.Name, c.Kind, text.Plural(c.Times, "time"))
	switch {
	case c.Kind != "url":
		return said
	case c.FetchedAt.IsZero() && c.Problem == "":
		return fmt.Sprintf("calendar %s (url): not fetched yet", c.Name)
	case c.FetchedAt.IsZero():
		return fmt.Sprintf("calendar %s (url): it could never be fetched: %s", c.Name, c.Problem)
	}
	said += fmt.Sprintf(", fetched %s ago", now.Sub(c.FetchedAt.Time).Round(time.Second))
	if c.Problem != "" {
		said += ", and not since: " + c.Problem
	}
	return said
}

// Why explains the scheduled times and runs of a job.
type Why struct {
	Job  string `json:"job"`
	Zone string `json:"zone"`
	// Notes are sentences about the job and the requested time.
	Notes   []string        `json:"notes"`
	Lines   []Explanation   `json:"lines"`
	Between []TimelineEntry `json:"between"`
}

// Explanation explains a scheduled time of a job, or a run with another trigger. Decision is empty
// if nothing has been decided yet.
type Explanation struct {
	Job      string          `json:"job"`
	Source   string          `json:"source"`
	Nominal  Time            `json:"nominal"`
	Actual   Time            `json:"actual"`
	Decision domain.Decision `json:"decision"`
	Reason   string          `json:"reason"`
	Run      string          `json:"run"`
	// Node is the node of the run if several nodes share a ledger. It belongs to the first attempt,
	// or to the attempt the line is about.
	Node    string         `json:"node,omitempty"`
	Outcome domain.Outcome `json:"outcome"`
	// State and WaitingFor describe the run.
	State      domain.State `json:"state,omitempty"`
	WaitingFor domain.Wait  `json:"waiting_for,omitempty"`
	// Asked marks the entry at the requested time.
	Asked bool `json:"asked,omitempty"`
	// Through is the last scheduled time of a row that represents several. Instants is their
	// number, if it was counted.
	Through  Time `json:"through,omitzero"`
	Instants int  `json:"instants,omitempty"`
}

// WhyFile explains how a watching job treats a file.
type WhyFile struct {
	Job     string `json:"job"`
	Path    string `json:"path"`
	Verdict string `json:"verdict"` // taken, waits, left_out, none or whole
	Reason  string `json:"reason"`
	// Since is the time the file started to wait.
	Since   Time           `json:"since"`
	Run     string         `json:"run"` // last run that processed the file; optional
	Outcome domain.Outcome `json:"outcome"`
}

// TimelineEntry is an event that explains the runs around it. Examples are a start of the daemon, a
// clock change and a pause.
type TimelineEntry struct {
	At   Time   `json:"at"`
	What string `json:"what"` // daemon, clock, config, pause or file
	Did  string `json:"did"`
	Text string `json:"text"`
}
