package api

import (
	"encoding/json"
	"path/filepath"

	"rouse/agent/tool/executor"
	"rouse/internal/domain"
	"rouse/internal/folderzip"
)

// Artifact is a version of a file that a run shared with the owner.
type Artifact struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Version     int    `json:"version"`          // counts from 1 per name, across all runs of the job
	Parent      string `json:"parent,omitempty"` // ID of the previous version
	Size        int64  `json:"size"`             // in bytes
	Hash        string `json:"sha256"`
	Description string `json:"description"`
	At          Time   `json:"at"`
}

// ArtifactFiles lists the files in a shared directory.
type ArtifactFiles struct {
	Files []folderzip.File `json:"files"`
	More  int              `json:"more"` // number of files not listed
}

// Recording is the recording of a run, in the format described in docs/guides/recordings.md.
type Recording struct {
	File string `json:"file"`
}

// Run is a run, as printed by `rouse runs --json`.
type Run struct {
	ID              string          `json:"id"`
	Job             string          `json:"job"`
	Agent           string          `json:"agent"`
	Trigger         domain.Trigger  `json:"trigger"`
	TriggerDetail   json.RawMessage `json:"trigger_detail"`
	State           domain.State    `json:"state"`
	WaitingFor      domain.Wait     `json:"waiting_for"`
	Outcome         domain.Outcome  `json:"outcome"`
	Exit            domain.Exit     `json:"exit"`
	Verified        bool            `json:"verified"`
	Attempt         int             `json:"attempt"`
	ScheduledAt     Time            `json:"scheduled_at"`
	QueuedAt        Time            `json:"queued_at"`
	StartedAt       Time            `json:"started_at"`
	FinishedAt      Time            `json:"finished_at"`
	Summary         string          `json:"summary"`
	Error           string          `json:"error"`
	Steps           int             `json:"steps"`
	Calls           int             `json:"calls"`
	TokensIn        int64           `json:"tokens_in"`
	TokensOut       int64           `json:"tokens_out"`
	CostUSD         float64         `json:"cost_usd"`
	EstimatedTokens int64           `json:"estimated_tokens,omitempty"` // tokens that were estimated because the server reported no usage
	EstimatedUSD    float64         `json:"estimated_usd,omitempty"`    // cost that was estimated because the server reported no usage
	Artifacts       []string        `json:"artifacts"`                  // file names
	Workspace       string          `json:"workspace,omitempty"`        // workspace the run uses
	Node            string          `json:"node,omitempty"`             // node of the last attempt, if several nodes share the ledger
	Tier            string          `json:"tier"`
	Taint           []string        `json:"taint"`
}

// RunDetail is a run with its attempts, steps and events.
type RunDetail struct {
	Run
	Body            string     `json:"body"` // body of the webhook request, truncated; empty for other runs
	ArtifactsDetail []Artifact `json:"artifacts_detail"`
	Inbox           []Item     `json:"inbox"`
	Checkout        *Checkout  `json:"checkout,omitempty"` // without the diff; left out if the run has no clone or the clone was discarded
	Attempts        []Attempt  `json:"attempts"`
	StepsDetail     []Step     `json:"steps_detail"`
	Events          []Event    `json:"events"`
}

// Program returns the name of the agent program that executed the run, or "" for other runs. The
// cost and nested steps of such a run are reported by the program.
func (d RunDetail) Program() string {
	for _, st := range d.StepsDetail {
		for _, c := range st.Calls {
			if c.Tool != executor.Name() {
				continue
			}
			var args executor.Args
			var words []string
			if json.Unmarshal(c.Args, &args) == nil && json.Unmarshal([]byte(args.Program), &words) == nil && len(words) > 0 {
				return filepath.Base(words[0])
			}
			return c.Tool
		}
	}
	return ""
}

// Pending explains why a run is not running.
type Pending struct {
	Reason  string `json:"reason"`  // why the run waits for its start or its model; empty if it does not wait
	Blocked bool   `json:"blocked"` // waiting is not enough: a person must fix something first
}

// Attempt is an attempt of a run.
type Attempt struct {
	Number     int                 `json:"number"`
	Node       string              `json:"node,omitempty"` // node of the attempt, if several nodes share the ledger
	State      domain.AttemptState `json:"state"`
	StartedAt  Time                `json:"started_at"`
	FinishedAt Time                `json:"finished_at"`
	Error      string              `json:"error"`
}

// Step is a model's turn with its calls.
type Step struct {
	Step            int      `json:"step"`
	Attempt         int      `json:"attempt"`
	Text            string   `json:"text"`
	Model           string   `json:"model,omitempty"` // configured name of the model that responded
	Calls           []Call   `json:"calls"`
	Notices         []string `json:"notices"`
	CostUSD         float64  `json:"cost_usd"`
	EstimatedTokens int64    `json:"estimated_tokens,omitempty"` // tokens that were estimated because the server reported no usage
	EstimatedUSD    float64  `json:"estimated_usd,omitempty"`    // cost that was estimated because the server reported no usage
}

// Call is a tool call. Result is the result in the envelope, or its message.
type Call struct {
	Tool       string           `json:"tool"`
	Args       json.RawMessage  `json:"args"`
	OK         bool             `json:"ok"`
	Kind       string           `json:"kind"`
	State      domain.CallState `json:"state"`
	Result     json.RawMessage  `json:"result"`
	Envelope   json.RawMessage  `json:"envelope"`
	StartedAt  Time             `json:"started_at"`
	DurationMS int64            `json:"duration_ms"`
	Deduped    bool             `json:"deduped"`
	// StepsDetail lists the nested steps that produced the result. Optional.
	StepsDetail []Step `json:"steps_detail,omitempty"`
}

// Event is an event of a run or of the daemon.
type Event struct {
	ID   string `json:"id"` // empty for a live event, which is not recorded
	Run  string `json:"run,omitempty"`
	Job  string `json:"job,omitempty"`
	At   Time   `json:"at"`
	Kind string `json:"kind"`
	// Dispatch is the meaning of the event for the client that requested the run. Empty if the
	// event has none.
	Dispatch Dispatch        `json:"dispatch,omitempty"`
	Data     json.RawMessage `json:"data"`
}

// Dispatch is the meaning of an event for the client that requested its run.
type Dispatch string

// Values of Dispatch.
const (
	DispatchStarted       Dispatch = "STARTED"
	DispatchActivity      Dispatch = "ACTIVITY"      // a call started or ended
	DispatchProgress      Dispatch = "PROGRESS"      // progress of a skill, or a sign of life of a model or program; at most every 500 ms
	DispatchClarification Dispatch = "CLARIFICATION" // the run waits for a person
	DispatchCompleted     Dispatch = "COMPLETED"
	DispatchFailed        Dispatch = "FAILED"
	DispatchCancelled     Dispatch = "CANCELLED"
	DispatchOutput        Dispatch = "OUTPUT" // a part of the response that the model is writing, or a shared file
	DispatchDraft         Dispatch = "DRAFT"  // the model's text so far, replacing earlier drafts; not yet the result of the run
)

// Kinds of live events. They are sent while they happen and are not recorded.
const (
	EventOutput   = "step.output"   // a part of the response that a model is writing, to be appended
	EventDraft    = "step.draft"    // the whole text so far, replacing earlier text
	EventProgress = "step.progress" // a sign of life of a model or a program
)

// RunRequest requests a run of a job, or of an agent with a prompt.
type RunRequest struct {
	Job    string            `json:"job,omitempty"`
	Agent  string            `json:"agent,omitempty"`
	Prompt string            `json:"prompt,omitempty"`
	Input  map[string]string `json:"input,omitempty"`
	File   Path              `json:"file,omitempty"` // absolute; requests from the network may only name files the job reads anyway
	// Again processes a file even if a run has already processed the same content.
	Again bool `json:"again,omitempty"`
	// Session is the key of an agent's session, any text of up to 200 characters. A run with a
	// prompt sees the conversation of earlier runs with the same key.
	Session string `json:"session,omitempty"`
	// NewSession starts the session anew. It applies to the session key, or to a job with
	// session: keep.
	NewSession bool `json:"fresh,omitempty"`
	// Tool and Args request a single manual call.
	Tool string          `json:"tool,omitempty"`
	Args json.RawMessage `json:"args,omitempty"`
	// FailOnExitCode makes the call fail if a program fails or a server responds with an error.
	FailOnExitCode bool `json:"check,omitempty"`
	// Skill requests one run of the skill's module with Given, a JSON object, as its input. DryRun
	// stops the run before the first call that would change anything.
	Skill      string          `json:"skill,omitempty"`
	SkillInput json.RawMessage `json:"given,omitempty"`
	DryRun     bool            `json:"dry_run,omitempty"`
	// Workspace is the name of the workspace the run uses.
	Workspace string `json:"workspace,omitempty"`
	// Untrusted means that the request may contain untrusted content. The run then starts with the
	// label A.
	Untrusted bool `json:"untrusted,omitempty"`
	// Uninstall calls the skill's removal hooks instead of running the skill.
	Uninstall bool `json:"removes,omitempty"`
	// Chat is set by the server for runs that answer in a conversation.
	Chat bool `json:"-"`
	// Trigger is set by the server. Empty means that a person requested the run.
	Trigger domain.Trigger `json:"-"`
	// Key is the Idempotency-Key header. Requests with the same key refer to the same run. If it is
	// empty, each request creates a run.
	Key string `json:"-"`
}
