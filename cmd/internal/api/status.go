package api

// Status says who serves a home and what it is doing.
type Status struct {
	PID       int    `json:"pid"`
	Version   string `json:"version"`
	Home      string `json:"home"`
	Config    string `json:"config"`
	StartedAt Time   `json:"started_at"`
	Ready     bool   `json:"ready"`
	Queued    int    `json:"queued"`
	Running   int    `json:"running"`
	Waiting   int    `json:"waiting"`
	// The configuration in force was read at ConfigAt. What is on disk is not in force while
	// there are problems; and what it says of ConfigRestart is not until a restart.
	ConfigAt       Time      `json:"config_at"`
	ConfigProblems []Problem `json:"config_problems"`
	ConfigRestart  []string  `json:"config_restart"`
}

// Check is one line of `rouse doctor`.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy"`
}

// NotifyRequest asks for a text to be sent to a channel at once.
type NotifyRequest struct {
	Channel string `json:"channel"`
	Text    string `json:"text"`
}
