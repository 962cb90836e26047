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
