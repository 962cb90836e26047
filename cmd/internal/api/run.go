package api

import (
	"encoding/json"
	"path/filepath"

	"rouse/agent/tool/executor"
	"rouse/internal/domain"
	"rouse/internal/folderzip"
)

// Artifact is a version of a file that a run handed to its owner (OSA-19).
type Artifact struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Version     int    `json:"version"`          // from 1, of this name in all runs of the job
	Parent      string `json:"parent,omitempty"` // the id of the version before
	Size        int64  `json:"size"`             // bytes
	Hash        string `json:"sha256"`
	Description string `json:"description"`
	At          Time   `json:"at"`
}

// ArtifactFiles are the files of a folder that a run shared.
type ArtifactFiles struct {
	Files []folderzip.File `json:"files"`
	More  int              `json:"more"` // that are not listed
}

// Recording is a run's recording: the text of a file, as docs/guides/recordings.md describes it.
type Recording struct {
	File string `json:"file"`
}

// Run is a run as `rouse runs --json` prints it.
type Run struct {
	ID            string          `json:"id"`
	Job           string          `json:"job"`
	Agent         string          `json:"agent"`
	Trigger       domain.Trigger  `json:"trigger"`
	TriggerDetail json.RawMessage `json:"trigger_detail"`
	State         domain.State    `json:"state"`
	WaitingFor    domain.Wait     `json:"waiting_for"`
	Outcome       domain.Outcome  `json:"outcome"`
	Exit          domain.Exit     `json:"exit"`
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
	// The part of the tokens and of the cost that no server reported.
	EstimatedTokens int64    `json:"estimated_tokens,omitempty"`
	EstimatedUSD    float64  `json:"estimated_usd,omitempty"`
	Artifacts       []string `json:"artifacts"`           // names
	Workspace       string   `json:"workspace,omitempty"` // that it works in
	Node            string   `json:"node,omitempty"`      // of the last attempt, where several share the ledger
	Tier            string   `json:"tier"`
	Taint           []string `json:"taint"`
}

// RunDetail is a run with everything that happened in it.
type RunDetail struct {
	Run
	Body            string     `json:"body"` // what the request of a webhook brought, cut; "" for other runs
	ArtifactsDetail []Artifact `json:"artifacts_detail"`
	Inbox           []Item     `json:"inbox"`
	Checkout        *Checkout  `json:"checkout,omitempty"` // without its diff; nil if the run has no clone, or it was discarded
	Attempts        []Attempt  `json:"attempts"`
	StepsDetail     []Step     `json:"steps_detail"`
	Events          []Event    `json:"events"`
}

// Program is the agent program that did the run, "" where none did. What the run cost, and what stands below its call, is what
// the program said.
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

// Pending says what a run that is not on waits for.
type Pending struct {
	Reason  string `json:"reason"`  // why the run waits, for its start or for its model; "" if it does not
	Blocked bool   `json:"blocked"` // somebody has to mend something first: waiting alone does not help
}

// Attempt is one try at a run.
type Attempt struct {
	Number     int                 `json:"number"`
	Node       string              `json:"node,omitempty"` // that made it, where several share the ledger
	State      domain.AttemptState `json:"state"`
	StartedAt  Time                `json:"started_at"`
	FinishedAt Time                `json:"finished_at"`
	Error      string              `json:"error"`
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
	// The part of what it took that no server reported.
	EstimatedTokens int64   `json:"estimated_tokens,omitempty"`
	EstimatedUSD    float64 `json:"estimated_usd,omitempty"`
}

// Call is one tool invocation. Result is the envelope's result, or its message.
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
	// StepsDetail are the steps by which the call was answered, of one that was answered so.
	StepsDetail []Step `json:"steps_detail,omitempty"`
}

// Event is one thing that happened.
type Event struct {
	ID   string `json:"id"` // "" of a live one, which is not on record
	Run  string `json:"run,omitempty"`
	Job  string `json:"job,omitempty"`
	At   Time   `json:"at"`
	Kind string `json:"kind"`
	// Dispatch is what it means to whoever waits for the run; "" where it means nothing to them (OSA-26).
	Dispatch Dispatch        `json:"dispatch,omitempty"`
	Data     json.RawMessage `json:"data"`
}

// Dispatch is what an event means to whoever asked for its run.
type Dispatch string

// The kinds of OSA-26.
const (
	DispatchStarted       Dispatch = "STARTED"
	DispatchActivity      Dispatch = "ACTIVITY"      // a call began or ended
	DispatchProgress      Dispatch = "PROGRESS"      // how far a skill is, or that a model or a program goes on; at most one in 500 ms
	DispatchClarification Dispatch = "CLARIFICATION" // it waits for a person
	DispatchCompleted     Dispatch = "COMPLETED"
	DispatchFailed        Dispatch = "FAILED"
	DispatchCancelled     Dispatch = "CANCELLED"
	DispatchOutput        Dispatch = "OUTPUT" // a part of the answer that its model is writing, or a file that it shared
	DispatchDraft         Dispatch = "DRAFT"  // what its model has said so far, in the place of what came before; it is not the answer of the run yet
)

// The kinds of live events, which are told while they happen and are on no record (OSA-26).
const (
	EventOutput   = "step.output"   // a part of the answer that a model is writing, to be put behind those before it
	EventDraft    = "step.draft"    // all that has come of it, in the place of what was told before
	EventProgress = "step.progress" // a model or a program goes on
)

// RunRequest asks for a run: of a job, or of an agent with a prompt.
type RunRequest struct {
	Job    string            `json:"job,omitempty"`
	Agent  string            `json:"agent,omitempty"`
	Prompt string            `json:"prompt,omitempty"`
	Input  map[string]string `json:"input,omitempty"`
	File   Path              `json:"file,omitempty"` // absolute; what the job reads anyway, for requests from the network
	// Again processes a file even if its content already had its run.
	Again bool `json:"again,omitempty"`
	// Session is the key of a session of the agent, any text of up to 200 characters: with a prompt, a run is told what was
	// said in the runs of the same key before it.
	Session string `json:"session,omitempty"`
	// Fresh has the session begin with this run: that of the key, or of a job that keeps one (session: keep).
	Fresh bool `json:"fresh,omitempty"`
	// Tool and Args make it one manual call.
	Tool string          `json:"tool,omitempty"`
	Args json.RawMessage `json:"args,omitempty"`
	// Check makes a failure of a program that fails, and of a server that answers with an error.
	Check bool `json:"check,omitempty"`
	// Skill, with the Given JSON object as its input, makes it one run of its module. DryRun ends it before the first call that
	// would change anything.
	Skill  string          `json:"skill,omitempty"`
	Given  json.RawMessage `json:"given,omitempty"`
	DryRun bool            `json:"dry_run,omitempty"`
	// Workspace is the name of the workspace in which it works.
	Workspace string `json:"workspace,omitempty"`
	// Untrusted says that whoever asks may repeat what strangers have written: the run begins with the label A.
	Untrusted bool `json:"untrusted,omitempty"`
	// Removes has the skill be told, by its hooks, that it will be removed, and not run.
	Removes bool `json:"removes,omitempty"`
	// Chat is set by the server: the run answers in a conversation.
	Chat bool `json:"-"`
	// Trigger is set by the server; "" is a person.
	Trigger domain.Trigger `json:"-"`
	// Key is the header Idempotency-Key: the same one is the same run; "" makes a new run each time.
	Key string `json:"-"`
}
