package web

import (
	"encoding/json"
	"time"
)

// Time is an instant as JSON: RFC 3339 UTC with milliseconds, null when it has not come.
type Time struct{ time.Time }

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return t.UTC().AppendFormat(nil, `"2006-01-02T15:04:05.000Z"`), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Time) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		t.Time = time.Time{}
		return nil
	}
	return t.Time.UnmarshalJSON(text)
}

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
}

// Run is a run as `rouse runs --json` prints it.
type Run struct {
	ID            string          `json:"id"`
	Job           string          `json:"job"`
	Agent         string          `json:"agent"`
	Trigger       string          `json:"trigger"`
	TriggerDetail json.RawMessage `json:"trigger_detail"`
	State         string          `json:"state"`
	WaitingFor    string          `json:"waiting_for"`
	Outcome       string          `json:"outcome"`
	Exit          string          `json:"exit"`
	Verified      bool            `json:"verified"`
	Attempt       int             `json:"attempt"`
	ScheduledAt   Time            `json:"scheduled_at"`
	QueuedAt      Time            `json:"queued_at"`
	StartedAt     Time            `json:"started_at"`
	FinishedAt    Time            `json:"finished_at"`
	Summary       string          `json:"summary"`
	Error         string          `json:"error"`
	Steps         int             `json:"steps"`
	Calls         int             `json:"calls"`
	TokensIn      int64           `json:"tokens_in"`
	TokensOut     int64           `json:"tokens_out"`
	CostUSD       float64         `json:"cost_usd"`
	Artifacts     []string        `json:"artifacts"` // names
	Tier          string          `json:"tier"`
	Taint         []string        `json:"taint"`
}

// RunDetail is a run with everything that happened in it.
type RunDetail struct {
	Run
	ArtifactsDetail []Artifact `json:"artifacts_detail"`
	Inbox           []Item     `json:"inbox"`
	Attempts        []Attempt  `json:"attempts"`
	StepsDetail     []Step     `json:"steps_detail"`
	Events          []Event    `json:"events"`
}

// Attempt is one try at a run.
type Attempt struct {
	Number     int    `json:"number"`
	State      string `json:"state"`
	StartedAt  Time   `json:"started_at"`
	FinishedAt Time   `json:"finished_at"`
	Error      string `json:"error"`
}

// Step is one model turn with its calls.
type Step struct {
	Step    int      `json:"step"`
	Attempt int      `json:"attempt"`
	Text    string   `json:"text"`
	Model   string   `json:"model,omitempty"` // who answered, by its configured name
	Calls   []Call   `json:"calls"`
	Notices []string `json:"notices"`
	CostUSD float64  `json:"cost_usd"`
}

// Call is one tool invocation. Result is the envelope's result, or its message.
type Call struct {
	Tool       string          `json:"tool"`
	Args       json.RawMessage `json:"args"`
	OK         bool            `json:"ok"`
	Kind       string          `json:"kind"`
	State      string          `json:"state"`
	Result     json.RawMessage `json:"result"`
	Envelope   json.RawMessage `json:"envelope"`
	StartedAt  Time            `json:"started_at"`
	DurationMS int64           `json:"duration_ms"`
	Deduped    bool            `json:"deduped"`
	// StepsDetail are the steps by which the call was answered, of one that was answered so.
	StepsDetail []Step `json:"steps_detail,omitempty"`
}

// Event is one thing that happened.
type Event struct {
	ID   string          `json:"id"`
	Run  string          `json:"run,omitempty"`
	Job  string          `json:"job,omitempty"`
	At   Time            `json:"at"`
	Kind string          `json:"kind"`
	Data json.RawMessage `json:"data"`
}

// Job is a job with its triggers in words and its last and next run.
type Job struct {
	Name        string   `json:"name"`
	Agent       string   `json:"agent"`
	Enabled     bool     `json:"enabled"`
	Triggers    []string `json:"triggers"`
	Next        Time     `json:"next"`
	LastRun     string   `json:"last_run"`
	LastState   string   `json:"last_state"`
	LastOutcome string   `json:"last_outcome"`
	LastAt      Time     `json:"last_at"`
	Paused      bool     `json:"paused"`
	// PausedUntil is null when the job stays paused until somebody resumes it.
	PausedUntil Time   `json:"paused_until"`
	PausedWhy   string `json:"paused_reason"`
	Problem     string `json:"problem"`
	Watch       *Watch `json:"watch"` // null without one
}

// Watch is the watch of a job. What it is doing is known only while a daemon runs.
type Watch struct {
	Path      string `json:"path"`
	Mode      string `json:"mode"`
	State     string `json:"state"`
	Waiting   int    `json:"waiting"` // files
	Round     int    `json:"round"`   // of converge
	Rescanned Time   `json:"rescanned"`
	Degraded  string `json:"degraded"`
	Problem   string `json:"problem"`
}

// Occurrence is one coming instant of a job, or a wake that an agent planned.
type Occurrence struct {
	Job      string `json:"job"`
	Agent    string `json:"agent,omitempty"`
	Source   string `json:"source"`
	Nominal  Time   `json:"nominal"`
	Actual   Time   `json:"actual"`
	Decision string `json:"decision"`
	Reason   string `json:"reason"`
	Run      string `json:"run,omitempty"`
	Outcome  string `json:"outcome,omitempty"`
}

// Check is one line of `rouse doctor`.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy"`
}

// Fire asks for a run: of a job, or of an agent with a prompt.
type Fire struct {
	Job    string            `json:"job,omitempty"`
	Agent  string            `json:"agent,omitempty"`
	Prompt string            `json:"prompt,omitempty"`
	Input  map[string]string `json:"input,omitempty"`
	File   string            `json:"file,omitempty"`
	// Tool and Args make it one call by hand.
	Tool string          `json:"tool,omitempty"`
	Args json.RawMessage `json:"args,omitempty"`
}

// Notify asks for a text to be sent to a channel at once.
type Notify struct {
	Channel string `json:"channel"`
	Text    string `json:"text"`
}

// Query asks an agent's database.
type Query struct {
	SQL            string `json:"sql"`
	Params         []any  `json:"params,omitempty"`
	Limit          int    `json:"limit,omitempty"`
	Offset         int    `json:"offset,omitempty"`
	IncludeDeleted bool   `json:"include_deleted,omitempty"`
}
