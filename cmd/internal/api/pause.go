package api

// Pause is a pause as `rouse pause --json` lists it.
type Pause struct {
	Scope  string `json:"scope"` // job, agent or all
	Name   string `json:"name"`  // "" for all
	Since  Time   `json:"since"`
	Until  Time   `json:"until"` // null: until somebody resumes
	Reason string `json:"reason"`
	By     string `json:"by"`
}

// PauseRequest asks for a pause: for a length of time, until a time, or until it is resumed.
type PauseRequest struct {
	Scope  string `json:"scope"`
	Name   string `json:"name,omitempty"`
	For    string `json:"for,omitempty"`
	Until  string `json:"until,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Paused is a pause that has just begun.
type Paused struct {
	Pause
	Zone    string   `json:"zone"`    // in which the time was read
	Running []string `json:"running"` // runs that are on, and go on
	Held    []Pause  `json:"held"`    // what holds the same thing too
}

// PauseEnd names the pause that is to end.
type PauseEnd struct {
	Scope string `json:"scope"`
	Name  string `json:"name,omitempty"`
}

// Resumed is what is left after a pause was ended.
type Resumed struct {
	Scope string  `json:"scope"`
	Name  string  `json:"name"`
	Zone  string  `json:"zone"`
	Held  []Pause `json:"held"` // what holds it still
}
