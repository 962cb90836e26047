package api

// Budget holds the usage and the limits of models for the current day and month.
type Budget struct {
	Day         string      `json:"day"` // in the time zone, such as 2026-11-21
	Timezone    string      `json:"timezone"`
	EndsAt      Time        `json:"ends_at"`
	Budgets     []BudgetRow `json:"budgets"`
	Month       string      `json:"month"` // such as 2026-11
	MonthEndsAt Time        `json:"month_ends_at"`
	Months      []BudgetRow `json:"months"`
}

// BudgetRow is the budget of the daemon, an agent or a job for a day or a month. Limits are null if
// there is no limit.
type BudgetRow struct {
	Scope           string   `json:"scope"` // daemon, agent or job
	Name            string   `json:"name"`  // empty for the daemon
	SpentUSD        float64  `json:"spent_usd"`
	ReservedUSD     float64  `json:"reserved_usd"` // maximum cost of calls that are running or were interrupted
	LimitUSD        *float64 `json:"limit_usd" jsonschema:"nullable"`
	LeftUSD         *float64 `json:"left_usd" jsonschema:"nullable"`
	SpentTokens     int64    `json:"spent_tokens"`
	ReservedTokens  int64    `json:"reserved_tokens"`
	LimitTokens     *int64   `json:"limit_tokens" jsonschema:"nullable"`
	LeftTokens      *int64   `json:"left_tokens" jsonschema:"nullable"`
	EstimatedUSD    float64  `json:"estimated_usd,omitempty"` // part of the spent amount that was estimated because the server reported no usage
	EstimatedTokens int64    `json:"estimated_tokens,omitempty"`
	EstimatedWhy    string   `json:"estimated_why,omitempty"` // reason for the latest estimate
	// RunsToCome is the number of scheduled runs until the end of the period. The forecast uses the
	// median of the last 20 runs of each job.
	RunsToCome     int     `json:"runs_to_come"`
	RunsUnforeseen int     `json:"runs_unforeseen"` // runs of jobs without earlier runs; not part of the forecast
	ForecastUSD    float64 `json:"forecast_usd"`
	ForecastTokens int64   `json:"forecast_tokens"`
}

// Cost is a forecast of the cost of future runs, based on past runs.
type Cost struct {
	From         Time      `json:"from"`
	To           Time      `json:"to"`
	Jobs         []CostRow `json:"jobs"`
	MedianUSD    float64   `json:"median_usd"` // sum for median runs
	HighUSD      float64   `json:"high_usd"`   // sum for runs at the 90th percentile
	MedianTokens int64     `json:"median_tokens"`
	HighTokens   int64     `json:"high_tokens"`
	// Unforeseen is the number of runs of jobs without history. The sums do not include them.
	Unforeseen int `json:"unforeseen"`
}

// CostRow is the forecast for the runs of one job.
type CostRow struct {
	Job             string  `json:"job"`
	Agent           string  `json:"agent"`
	Runs            int     `json:"runs"`           // scheduled runs
	After           int     `json:"after"`          // runs that follow successful runs of other jobs; included in runs
	PastRuns        int     `json:"past_runs"`      // past runs used for the forecast, at most 50; 0 if there is no history
	RunMedianUSD    float64 `json:"run_median_usd"` // median cost of one run
	RunHighUSD      float64 `json:"run_high_usd"`   // 90th percentile of the cost of one run
	RunMedianTokens int64   `json:"run_median_tokens"`
	RunHighTokens   int64   `json:"run_high_tokens"`
	MedianUSD       float64 `json:"median_usd"`
	HighUSD         float64 `json:"high_usd"`
	MedianTokens    int64   `json:"median_tokens"`
	HighTokens      int64   `json:"high_tokens"`
}
