package api

// Budget is what models took today and this month, and what they may still take.
type Budget struct {
	Day      string      `json:"day"` // of the timezone: 2026-11-21
	Timezone string      `json:"timezone"`
	EndsAt   Time        `json:"ends_at"`
	Budgets  []BudgetRow `json:"budgets"`
	// The same of the calendar month: its name is 2026-11, and what is to come is until its end.
	Month       string      `json:"month"`
	MonthEndsAt Time        `json:"month_ends_at"`
	Months      []BudgetRow `json:"months"`
}

// BudgetRow is the day, or the month, of the daemon, an agent or a job. What is reserved may be taken by
// calls that are on, or were when their process ended; limits are null where there is none.
type BudgetRow struct {
	Scope          string   `json:"scope"` // daemon, agent or job
	Name           string   `json:"name"`  // "" of the daemon
	SpentUSD       float64  `json:"spent_usd"`
	ReservedUSD    float64  `json:"reserved_usd"`
	LimitUSD       *float64 `json:"limit_usd" jsonschema:"nullable"`
	LeftUSD        *float64 `json:"left_usd" jsonschema:"nullable"`
	SpentTokens    int64    `json:"spent_tokens"`
	ReservedTokens int64    `json:"reserved_tokens"`
	LimitTokens    *int64   `json:"limit_tokens" jsonschema:"nullable"`
	LeftTokens     *int64   `json:"left_tokens" jsonschema:"nullable"`
	// The part of what was spent that no server reported, and why the last of it is estimated.
	EstimatedUSD    float64 `json:"estimated_usd,omitempty"`
	EstimatedTokens int64   `json:"estimated_tokens,omitempty"`
	EstimatedWhy    string  `json:"estimated_why,omitempty"`
	// The runs that the clock still brings in it, and what they will take if they are like
	// the last ones of their jobs, in the median of twenty. Unforeseen are those of jobs that have not run yet.
	RunsToCome     int     `json:"runs_to_come"`
	RunsUnforeseen int     `json:"runs_unforeseen"`
	ForecastUSD    float64 `json:"forecast_usd"`
	ForecastTokens int64   `json:"forecast_tokens"`
}

// Cost is what the runs that are to come until a time will cost, if they are like those of the past.
type Cost struct {
	From Time      `json:"from"`
	To   Time      `json:"to"`
	Jobs []CostRow `json:"jobs"`
	// The sums of the rows: of the median runs, and of those that nine of ten cost no more than.
	MedianUSD    float64 `json:"median_usd"`
	HighUSD      float64 `json:"high_usd"`
	MedianTokens int64   `json:"median_tokens"`
	HighTokens   int64   `json:"high_tokens"`
	// Unforeseen are the runs of jobs without a history, of which nobody knows what they take: no sum has them.
	Unforeseen int `json:"unforeseen"`
}

// CostRow is what the runs of a job will cost, all of them together.
type CostRow struct {
	Job      string `json:"job"`
	Agent    string `json:"agent"`
	Runs     int    `json:"runs"`      // that the clock brings
	After    int    `json:"after"`     // of them, those that follow runs of other jobs, if all of those end well
	PastRuns int    `json:"past_runs"` // that this is known by, of the last fifty; 0: there is no history
	// Of one run: the median, and what nine of ten cost no more than.
	RunMedianUSD    float64 `json:"run_median_usd"`
	RunHighUSD      float64 `json:"run_high_usd"`
	RunMedianTokens int64   `json:"run_median_tokens"`
	RunHighTokens   int64   `json:"run_high_tokens"`
	MedianUSD       float64 `json:"median_usd"`
	HighUSD         float64 `json:"high_usd"`
	MedianTokens    int64   `json:"median_tokens"`
	HighTokens      int64   `json:"high_tokens"`
}
