package api

import "rouse/internal/domain"

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
