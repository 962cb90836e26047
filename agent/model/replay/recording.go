package replay

import (
	"encoding/json"
	"slices"
	"time"

	"rouse/agent/model"
	"rouse/internal/domain"
)

// Version is the version of the format.
const Version = 1

// Recording is the record of a run. A provider needs only Exchanges.
type Recording struct {
	Run       *Run // nil in a file written by hand
	Attempts  []Attempt
	Exchanges []Exchange
	Steps     []Step
	Calls     []Call
}

// Run describes the request for a run and its outcome.
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

// Attempt is one attempt of a run.
type Attempt struct {
	Number int                 `json:"number"`
	State  domain.AttemptState `json:"state"`
	Error  string              `json:"error,omitempty"`
	// Snapshot is the state that the attempt found when it started. Only the runner reads it.
	Snapshot json.RawMessage `json:"scene,omitempty"`
	// Questions are the attempt's questions to its owner, in order.
	Questions []Question `json:"heard,omitempty"`
}

// Question is a question to the owner and its state, with an answer if there is one.
type Question struct {
	Kind   string `json:"kind,omitempty"` // QuestionApproval or QuestionDefinition; "" for a question in free text
	State  string `json:"state"`
	Answer string `json:"answer,omitempty"`
}

// Kinds of approvals: for a call, or for the definition of the job.
const (
	QuestionApproval   = "approval"
	QuestionDefinition = "definition"
)

// Asked reports whether the attempt asked a question of a kind.
func (a Attempt) Asked(kind string) bool {
	return slices.ContainsFunc(a.Questions, func(h Question) bool { return h.Kind == kind })
}

// Step is a recorded turn of the model.
type Step struct {
	Attempt      int          `json:"attempt"`
	Number       int          `json:"step"`
	Text         string       `json:"text,omitempty"`
	Notices      []string     `json:"notices,omitempty"`
	Usage        *model.Usage `json:"usage,omitempty"`
	CostMicroUSD int64        `json:"cost_micro_usd,omitempty"`
	Unfinished   bool         `json:"unfinished,omitempty"` // the process died during the step
}

// Call is a recorded tool call.
type Call struct {
	Attempt  int              `json:"attempt"`
	Step     int              `json:"step"`
	Index    int              `json:"index"`
	Key      string           `json:"key"`
	Tool     string           `json:"tool"`
	Args     json.RawMessage  `json:"args"`
	State    domain.CallState `json:"state"`
	Envelope json.RawMessage  `json:"envelope,omitempty"` // missing if the result is unknown
	TookMS   int64            `json:"took_ms,omitempty"`
	Within   *Within          `json:"within,omitempty"` // optional
}

// Within describes the work of a skill's module within a call. It is not replayed, because its
// calls are part of the outside world, like the call itself.
type Within struct {
	Turns        int          `json:"turns"`           // turns with a number in the run
	Steps        int          `json:"steps,omitempty"` // turns that were requests to a model
	Calls        int          `json:"calls,omitempty"`
	Usage        *model.Usage `json:"usage,omitempty"`
	CostMicroUSD int64        `json:"cost_micro_usd,omitempty"`
}

// Exchange is one request and its answer. Each try of a turn is a separate exchange.
type Exchange struct {
	Attempt int            `json:"attempt,omitempty"`
	Step    int            `json:"step,omitempty"`
	Try     int            `json:"try,omitempty"`   // number within the step, from 0
	Model   string         `json:"model,omitempty"` // name in the configuration
	Request *model.Request `json:"-"`               // a line has only the new part
	// Contains are texts that a request must contain, in the system prompt or in the last message.
	// They are written by hand and replace the request.
	Contains Texts `json:"contains,omitempty"`
	Answer
	Fault     *Fault    `json:"error,omitempty"`
	StartedAt time.Time `json:"started_at,omitzero"`
	FirstMS   int64     `json:"first_ms,omitempty"` // until the first event
	TookMS    int64     `json:"took_ms,omitempty"`
}

// Answer is the answer of a model. If the turn failed, it is the part that had arrived.
type Answer struct {
	Text  string          `json:"text,omitempty"`
	Calls []model.Call    `json:"calls,omitempty"`
	Stop  string          `json:"stop,omitempty"`
	Raw   json.RawMessage `json:"raw,omitempty"`
	Usage *model.Usage    `json:"usage,omitempty"` // nil if it was not reported
	// Unreported are possible costs in addition to Usage. It is nil if the provider did not report
	// them.
	Unreported *model.Unreported `json:"unreported,omitempty"`
}

// maxRequests is the maximum number of requests of a turn in a recording.
const maxRequests = 1000

func clamped(u model.Unreported) *model.Unreported {
	return &model.Unreported{Requests: min(max(u.Requests, 0), maxRequests), Bytes: min(max(u.Bytes, 0), maxLine), Begun: u.Begun.Clamped()}
}

// inTranscript reports whether a transcript contains the answer. Empty answers are not in it.
func (a Answer) inTranscript() bool { return a.Text != "" || len(a.Calls) > 0 }

// Fault is the reason why a turn failed. Kind is a model.ErrorKind. If Kind is "", the run had to
// end.
type Fault struct {
	Kind      string         `json:"kind,omitempty"`
	Message   string         `json:"message"`
	Retryable bool           `json:"retryable,omitempty"`
	Refused   bool           `json:"refused,omitempty"` // the server rejected the request, which costs nothing
	Outcome   domain.Outcome `json:"outcome,omitempty"`
	Feedback  string         `json:"feedback,omitempty"` // feedback for the model's next try
}

// Err returns the fault as the error of a provider.
func (f Fault) Err() error {
	if f.Kind == "" {
		return &stopped{f.Message, f.Outcome}
	}
	return &model.Error{Kind: model.ErrorKind(f.Kind), Message: f.Message, Retryable: f.Retryable, Refused: f.Refused, Feedback: f.Feedback}
}

// stopped is the error of a run that had to end while its model was answering. The loop reads its
// outcome.
type stopped struct {
	reason  string
	outcome domain.Outcome
}

func (s *stopped) Error() string           { return s.reason }
func (s *stopped) Outcome() domain.Outcome { return s.outcome }

// AnswersOnly returns the answers without the requests, to be given in order.
func (r Recording) AnswersOnly() Recording {
	out := Recording{}
	// Without the requests, failed tries and empty answers would also be given.
	for _, x := range playableTurns(r.Exchanges) {
		out.Exchanges = append(out.Exchanges, Exchange{Contains: x.Contains, Answer: x.Answer, Fault: x.Fault})
	}
	return out
}
