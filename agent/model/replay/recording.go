package replay

import (
	"encoding/json"
	"slices"
	"time"

	"rouse/agent/model"
	"rouse/internal/domain"
)

// Version is that of the format.
const Version = 1

// Recording is what was recorded of a run. A provider needs no more than Exchanges.
type Recording struct {
	Run       *Run // nil in a file that was written manually
	Attempts  []Attempt
	Exchanges []Exchange
	Steps     []Step
	Calls     []Call
}

// Run is what was asked for, and how it ended.
type Run struct {
	ID           string          `json:"id"`
	Job          string          `json:"job,omitempty"`
	Agent        string          `json:"agent"`
	Trigger      domain.Trigger  `json:"trigger"`
	Detail       json.RawMessage `json:"detail,omitempty"`
	ScheduledAt  time.Time       `json:"scheduled_at,omitzero"`
	QueuedAt     time.Time       `json:"queued_at,omitzero"`
	StartedAt    time.Time       `json:"started_at,omitzero"`
	FinishedAt   time.Time       `json:"finished_at,omitzero"`
	Outcome      domain.Outcome  `json:"outcome"`
	Exit         domain.Exit     `json:"exit,omitempty"`
	Summary      string          `json:"summary,omitempty"`
	Error        string          `json:"error,omitempty"`
	Verified     bool            `json:"verified,omitempty"`
	Steps        int             `json:"steps,omitempty"`
	Calls        int             `json:"calls,omitempty"`
	Usage        *model.Usage    `json:"usage,omitempty"`
	CostMicroUSD int64           `json:"cost_micro_usd,omitempty"`
}

// Attempt is one try at a run.
type Attempt struct {
	Number int                 `json:"number"`
	State  domain.AttemptState `json:"state"`
	Error  string              `json:"error,omitempty"`
	// Snapshot is what the attempt found when it began. Only the runner reads it.
	Snapshot json.RawMessage `json:"scene,omitempty"`
	// What the attempt asked its owner, in order.
	Questions []Question `json:"heard,omitempty"`
}

// Question is a question to the owner, and how it ended: with an answer, or without one.
type Question struct {
	Kind   string `json:"kind,omitempty"` // QuestionApproval or QuestionDefinition; "" for a question in words
	State  string `json:"state"`
	Answer string `json:"answer,omitempty"`
}

// What an attempt needs an approval for: to make a call, or to start at all, as its job is defined.
const (
	QuestionApproval   = "approval"
	QuestionDefinition = "definition"
)

// Asked says whether the attempt asked a question of a kind.
func (a Attempt) Asked(kind string) bool {
	return slices.ContainsFunc(a.Questions, func(h Question) bool { return h.Kind == kind })
}

// Step is a turn of the model as it was recorded.
type Step struct {
	Attempt      int          `json:"attempt"`
	Number       int          `json:"step"`
	Text         string       `json:"text,omitempty"`
	Notices      []string     `json:"notices,omitempty"`
	Usage        *model.Usage `json:"usage,omitempty"`
	CostMicroUSD int64        `json:"cost_micro_usd,omitempty"`
	Unfinished   bool         `json:"unfinished,omitempty"` // its process died during it
}

// Call is a tool call as it was recorded.
type Call struct {
	Attempt  int              `json:"attempt"`
	Step     int              `json:"step"`
	Index    int              `json:"index"`
	Key      string           `json:"key"`
	Tool     string           `json:"tool"`
	Args     json.RawMessage  `json:"args"`
	State    domain.CallState `json:"state"`
	Envelope json.RawMessage  `json:"envelope,omitempty"` // missing: its result is not known
	TookMS   int64            `json:"took_ms,omitempty"`
	Within   *Within          `json:"within,omitempty"` // nil: nothing
}

// Within is what the module of a skill did within a call. It is not played again: its calls are of the world, as the call is.
type Within struct {
	Turns        int          `json:"turns"`           // that have a number in the run
	Steps        int          `json:"steps,omitempty"` // of them, that were asked of a model
	Calls        int          `json:"calls,omitempty"`
	Usage        *model.Usage `json:"usage,omitempty"`
	CostMicroUSD int64        `json:"cost_micro_usd,omitempty"`
}

// Exchange is one request and its answer. Each try of a turn has its own.
type Exchange struct {
	Attempt int            `json:"attempt,omitempty"`
	Step    int            `json:"step,omitempty"`
	Try     int            `json:"try,omitempty"`   // from 0 on, within the step
	Model   string         `json:"model,omitempty"` // its name in the configuration
	Request *model.Request `json:"-"`               // a line has only what is new in it
	// Contains are texts that a request must hold, in the system prompt or in the last message.
	// They are written by hand, in place of a request.
	Contains Texts `json:"contains,omitempty"`
	Answer
	Fault     *Fault    `json:"error,omitempty"`
	StartedAt time.Time `json:"started_at,omitzero"`
	FirstMS   int64     `json:"first_ms,omitempty"` // until the first event came
	TookMS    int64     `json:"took_ms,omitempty"`
}

// Answer is what a model answered. Of a turn that failed it is the part that had arrived.
type Answer struct {
	Text  string          `json:"text,omitempty"`
	Calls []model.Call    `json:"calls,omitempty"`
	Stop  string          `json:"stop,omitempty"`
	Raw   json.RawMessage `json:"raw,omitempty"`
	Usage *model.Usage    `json:"usage,omitempty"` // nil: it was not reported
	// What it may have cost beyond Usage; nil: the provider did not say.
	Unreported *model.Unreported `json:"unreported,omitempty"`
}

// maxRequests bounds the requests of a turn that a recording can claim.
const maxRequests = 1000

func clamped(u model.Unreported) *model.Unreported {
	return &model.Unreported{Requests: min(max(u.Requests, 0), maxRequests), Bytes: min(max(u.Bytes, 0), maxLine), Begun: u.Begun.Clamped()}
}

// inTranscript reports whether a transcript holds the answer. It holds no empty ones.
func (a Answer) inTranscript() bool { return a.Text != "" || len(a.Calls) > 0 }

// Fault is why a turn failed. Kind is a model.ErrorKind; "" means that the run had to end.
type Fault struct {
	Kind      string         `json:"kind,omitempty"`
	Message   string         `json:"message"`
	Retryable bool           `json:"retryable,omitempty"`
	Refused   bool           `json:"refused,omitempty"` // nothing is paid for it
	Outcome   domain.Outcome `json:"outcome,omitempty"`
	Feedback  string         `json:"feedback,omitempty"` // what the model was told when it was asked again
}

// Err is the fault as a provider returns it.
func (f Fault) Err() error {
	if f.Kind == "" {
		return &stopped{f.Message, f.Outcome}
	}
	return &model.Error{Kind: model.ErrorKind(f.Kind), Message: f.Message, Retryable: f.Retryable, Refused: f.Refused, Feedback: f.Feedback}
}

// stopped is the end of a run that came while its model was answering. The loop reads its outcome.
type stopped struct {
	reason  string
	outcome domain.Outcome
}

func (s *stopped) Error() string           { return s.reason }
func (s *stopped) Outcome() domain.Outcome { return s.outcome }

// AnswersOnly returns the answers without the requests, to be given in their order.
func (r Recording) AnswersOnly() Recording {
	out := Recording{}
	// Without the requests, failed tries and empty answers would come in their turn too.
	for _, x := range playableTurns(r.Exchanges) {
		out.Exchanges = append(out.Exchanges, Exchange{Contains: x.Contains, Answer: x.Answer, Fault: x.Fault})
	}
	return out
}
