package api

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Path    string `json:"path"`
	Name    string `json:"name,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	Warning bool   `json:"warning"`
}

// ConfigProblemHeader is the response header with the reason why the configuration on disk is not in use, percent-encoded.
const ConfigProblemHeader = "Rouse-Config-Problem"

// Reload is what became of reading the configuration again: either problems, and nothing
// has changed, or the jobs and other things that are not what they were.
type Reload struct {
	OK       bool      `json:"ok"`
	Problems []Problem `json:"problems"`
	Added    []string  `json:"added"`
	Changed  []string  `json:"changed"`
	Removed  []string  `json:"removed"`
	Others   []string  `json:"others"`
	Restart  []string  `json:"restart"`
	// Latest is what the last reading changed that changed anything, which the daemon may have done by itself a moment
	// ago; absent before the first.
	Latest *Reloaded `json:"latest,omitempty"`
}

// Reloaded is a reading of the configuration that changed something.
type Reloaded struct {
	At      Time   `json:"at"`
	Summary string `json:"summary"`
}
