package api

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
