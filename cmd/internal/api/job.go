package api

import (
	"fmt"
	"time"

	"rouse/internal/domain"
	"rouse/internal/text"
)

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

// BackfillRequest asks for past instants of a job's schedule to run after all.
type BackfillRequest struct {
	From   string `json:"from"` // as a person writes a time
	To     string `json:"to"`   // what is written belongs to it: a date up to its end; "" is now
	DryRun bool   `json:"dry_run"`
}

// Backfill is what becomes of the instants of a span, or, of a dry run, what would.
type Backfill struct {
	Job    string `json:"job"`
	Zone   string `json:"zone"`
	From   Time   `json:"from"`
	To     Time   `json:"to"`
	DryRun bool   `json:"dry_run"`
	Runs   int    `json:"runs"` // how many instants run
	// ForecastUSD is what these take if each costs what the last runs of the job did in the median. It says nothing of
	// as many as RunsUnforeseen.
	ForecastUSD    float64           `json:"forecast_usd"`
	RunsUnforeseen int               `json:"runs_unforeseen"`
	Instants       []BackfillInstant `json:"instants"`
}

// BackfillInstant is one of them. Run is the run that it has, if it has one.
type BackfillInstant struct {
	Nominal Time           `json:"nominal"`
	Source  string         `json:"source"`
	Runs    bool           `json:"runs"` // by this backfill
	Reason  string         `json:"reason"`
	Run     string         `json:"run,omitempty"`
	Outcome domain.Outcome `json:"outcome,omitempty"`
}

// Calendar is how a calendar of the configuration is.
type Calendar struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"`       // holidays, file or url
	Times     int    `json:"times"`      // that it names, some years around now
	FetchedAt Time   `json:"fetched_at"` // of a url, when what is kept of it came; null: it never did
	ChangedAt Time   `json:"changed_at"` // of a url, when it was last another than before
	Problem   string `json:"problem"`    // why it could not be fetched the last time; "": it could
}

// Text says how it is, with the age of what was fetched.
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
