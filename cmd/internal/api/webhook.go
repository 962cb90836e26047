package api

// Webhook is one of a job.
type Webhook struct {
	Job     string `json:"job"`
	Path    string `json:"path"`
	URL     string `json:"url"` // "" where nobody listens
	Scheme  string `json:"scheme"`
	MaxBody int64  `json:"max_body"` // bytes
	Enabled bool   `json:"enabled"`
	Refuses string `json:"refuses"` // why it takes nothing now, "" if it does

	LastRun     string `json:"last_run"` // that it started, "" before the first
	LastAt      Time   `json:"last_at"`
	LastOutcome string `json:"last_outcome"` // "" while it has not ended
}
