package loop

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	"rouse/agent/loop/memory"
	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/domain"
)

// Options configures one attempt.
type Options struct {
	Provider   model.Provider
	Registry   *tool.Registry
	Recorder   Recorder
	Policy     Policy
	Bounds     Bounds
	Budget     Budget     // nil means that costs are not counted
	Authorizer Authorizer // nil allows every call
	Invocation tool.Invocation
	System     string
	Messages   []model.Message
	Model      string // name of the model, for the record
	MaxOutput  int
	Window     int // context size of the model in tokens; zero means 128,000
	// KeepTools reports that the next run with the same tools is expected within the hour for which
	// a provider may cache them.
	KeepTools bool
	// LearnContext is called with the context size that a server reports when it rejects a request
	// as too long. Optional.
	LearnContext func(tokens int)
	Temperature  *float64
	Fallback     *Fallback // nil means no fallback

	// PriorCalls are the calls of earlier attempts, by key.
	PriorCalls map[string]PriorCall
	// PendingCalls are the calls at the end of Messages that have no result yet.
	PendingCalls []model.Call
	// Interrupted reports that the end of Messages may be the unrecorded end of the run.
	Interrupted bool
	// Exhausted reports that earlier attempts used up all steps. Without it, each answer of a
	// person would add a step.
	Exhausted bool
	// For a run in phases: durations of earlier calls, by key, and steps of earlier attempts.
	PriorDurations map[string]time.Duration
	PriorSteps     int

	// Now returns the time to add to the result of the call with a key, or "". Optional.
	Now func(key string) string

	// Board is the todo list, which is also the plan of a run in phases. Optional.
	Board *memory.Board
	// Reducer answers the reduce calls. Nil if the run does not have that tool.
	Reducer *Reducer
	// Inner executes inner runs. Optional.
	Inner *Inner
	// Completer asks a model within a run without a model. Optional.
	Completer *Completer
}

// Policy holds the settings in which kinds of runs differ.
type Policy struct {
	Name          string
	BudgetWarning int // steps left at which the model is warned; zero means never
	EmptyRetries  int // consecutive retries after an empty answer
	TurnRetries   int // uncharged retries of a turn in which the model failed
	// UnreachableRetries replaces TurnRetries for an unreachable server, if it is larger.
	UnreachableRetries int
	NoRetryDelay       bool // no delay before retries, for a replay
	StopOnRejection    bool // a rejected call ends the run
	// EndOnQuestion ends the run with the question as its result. The caller sends the request
	// again with the answer.
	EndOnQuestion  bool
	Dedupe         bool // do not repeat a reading call while its result is valid
	DedupeNotice   bool // tell the model about an avoided repetition
	Advice         bool // give advice after listings, guesses and repetitions
	StaleTodoSteps int  // steps after which an unchanged todo list with open items gets a notice; zero means never
	// FreeSteps is the number of steps that are not charged: steps that only move rows, and steps
	// of reductions. Empty answers are never charged.
	FreeSteps     int
	NoModel       bool   // no model answers (a playbook): each call is a step, and there are no notices
	ClosingPrompt string // prompt for the final text when the steps are used up; empty asks for what was done
	Phases        Phases
}

// Headless returns the policy of models that run without a person.
func Headless() Policy {
	return Policy{Name: "headless", BudgetWarning: 3, EmptyRetries: 2, TurnRetries: 3, UnreachableRetries: 7, Dedupe: true, Advice: true, StaleTodoSteps: 4, FreeSteps: 16}
}

// ChatSteps is the default number of steps of a run that a chat requested.
const ChatSteps = 15

// Chat returns the policy of conversations, in which a rejected call or a question ends the run.
func Chat() Policy {
	p := Headless()
	p.Name, p.StopOnRejection, p.DedupeNotice, p.EndOnQuestion = "chat", true, true, true
	return p
}

// Playbook returns the policy of fixed lists of calls.
func Playbook() Policy { return Policy{Name: "playbook", NoModel: true} }

// Phases are the limits of runs that work in phases. MaxSteps 0 means no phases.
type Phases struct {
	BaseSteps int // initial number
	PerCall   int // added by each action
	MaxSteps  int // maximum
	Idle      int // consecutive steps without an action that end a run
	Repeats   int // allowed consecutive repetitions of an action
	View      int // bytes of the working memory shown to a model
}

// Phased returns the policy of models that work in phases and keep a working memory.
func Phased() Policy {
	p := Headless()
	p.Name, p.StaleTodoSteps = "phased", 0
	p.Phases = Phases{BaseSteps: 12, PerCall: 2, MaxSteps: 20, Idle: 4, Repeats: 3, View: 8 << 10}
	return p
}

// Bounds are the hard limits of one attempt. Zero means the default, and a negative value means no
// limit.
type Bounds struct {
	Steps, Calls int           // defaults 30 (no limit without a model) and 100
	Wall         time.Duration // default 10m
	Idle         time.Duration // time without an event of the model, not counting calls; default 5m
	Tokens       int64         // default no limit
	CostMicroUSD int64         // default no limit; enforced by Options.Budget
	Output       int64         // bytes written by the model; default 1 MiB
}

func (b Bounds) withDefaults() Bounds {
	b.Steps, b.Calls = cmp.Or(b.Steps, 30), cmp.Or(b.Calls, 100)
	b.Wall, b.Idle = cmp.Or(b.Wall, 10*time.Minute), cmp.Or(b.Idle, 5*time.Minute)
	b.Output = cmp.Or(b.Output, 1<<20)
	return b
}

// After returns the bounds that remain for an attempt that continues an interrupted one. At least
// one step and one call remain.
func (b Bounds) After(steps, calls int, tokens int64) Bounds {
	b = b.withDefaults()
	if b.Steps > 0 {
		b.Steps = max(b.Steps-steps, 1)
	}

	if b.Calls > 0 {
		b.Calls = max(b.Calls-calls, 1)
	}

	return b.AfterTokens(tokens)
}

// Exhausted reports whether steps or tokens use up the bounds.
func (b Bounds) Exhausted(steps int, tokens int64) bool {
	b = b.withDefaults()
	return b.Steps > 0 && steps >= b.Steps || b.Tokens > 0 && tokens >= b.Tokens
}

// AfterCost is like After, for the cost.
func (b Bounds) AfterCost(microUSD int64) Bounds {
	if b.CostMicroUSD > 0 {
		b.CostMicroUSD = max(b.CostMicroUSD-microUSD, 1)
	}
	return b
}

// AfterTokens is like After, for the tokens only. It is for a run that counts steps and calls from
// zero again.
func (b Bounds) AfterTokens(tokens int64) Bounds {
	if b.Tokens > 0 {
		b.Tokens = max(b.Tokens-tokens, 1)
	}
	return b
}

// Within returns the stricter of each pair of bounds.
func (b Bounds) Within(o Bounds) Bounds {
	b, o = b.withDefaults(), o.withDefaults()
	return Bounds{
		Steps: stricter(b.Steps, o.Steps), Calls: stricter(b.Calls, o.Calls), Wall: stricter(b.Wall, o.Wall),
		Idle: stricter(b.Idle, o.Idle), Tokens: stricter(b.Tokens, o.Tokens), Output: stricter(b.Output, o.Output),
		CostMicroUSD: stricter(b.CostMicroUSD, o.CostMicroUSD),
	}
}

// stricter returns the smaller bound. Zero and negative values mean no bound.
func stricter[N int | int64 | time.Duration](a, b N) N {
	if a <= 0 || (b > 0 && b < a) {
		return b
	}
	return a
}

// Step is one model turn, for the record.
type Step struct {
	Number     int
	ParentCall string          // key of the enclosing call; empty for a step of the run itself
	Message    json.RawMessage // a model.Message
	Text       string
	Model      string // model that answered
	Notices    []string
	Retried    model.Retried // failures before the answer
	Spent
	StartedAt, FinishedAt time.Time
}

// Call is one tool call, for the record.
type Call struct {
	Step, Index           int
	ID, Key, Tool         string
	Args                  json.RawMessage
	Effect                domain.Effect
	Once                  bool // a repeated call changes nothing (see tool.Spec)
	State                 domain.CallState
	Envelope              json.RawMessage
	StartedAt, FinishedAt time.Time
}

// Recorder keeps the record. If a method returns an error, the recorded action does not happen. It
// may delay the end of a step or call, and the start of a call that only reads.
type Recorder interface {
	StartStep(ctx context.Context, s Step) error
	FinishStep(ctx context.Context, s Step) error
	StartCall(ctx context.Context, c Call) error
	FinishCall(ctx context.Context, c Call) error
	// AnswerCall records a call that is not made, because its result is known or it is refused.
	AnswerCall(ctx context.Context, c Call) error
	Flush(ctx context.Context) error // called at the end of the run
}

// PriorCall is the state of a call that an earlier attempt made.
type PriorCall struct {
	// Envelope is nil if the call had started and its result is not known.
	Envelope  json.RawMessage
	Uncertain bool   // it may have had an effect
	Repeat    bool   // the owner decided to make it again, whatever its effect
	Tool      string // called tool; a call of another tool is a different call
}

// Result is the result of an attempt.
type Result struct {
	Exit           domain.Exit
	Outcome        domain.Outcome
	Summary, Error string
	Kind           string // kind of the error as named by its provider; may be empty
	Verified       bool
	Steps          int // turns asked of the model, including uncharged turns and those of reductions
	Calls          int
	Answered       int // turns that a model answered
	Spent
	// Failure is the failure of a model that ended the run, or nil.
	Failure error
	// Wait is the question to a person, and Approval the call that needs an approval. If either is
	// set, Outcome is "".
	Wait     *Question
	Approval *tool.ApprovalRequest
}

// Question is a question that must be answered before a run can continue.
type Question struct {
	Kind          string   `json:"kind,omitempty"`  // kind of the inbox item; empty means input
	Title         string   `json:"title,omitempty"` // subject in one line; optional
	Question      string   `json:"question"`
	Options       []string `json:"options,omitempty"`
	AllowMultiple bool     `json:"allow_multiple,omitempty"`
	// InputSchema is the JSON Schema of the answer. Nil means a text.
	InputSchema json.RawMessage `json:"input_schema,omitempty"`
	// Call is the key of the call that asked.
	Call string `json:"-"`
	// SignIn is the requested sign-in, as AGENT/SKILL/PROVIDER. Empty if none is requested.
	SignIn string `json:"sign_in,omitempty"`
}

func (q *Question) text() string {
	var out strings.Builder
	out.WriteString(q.Question)
	for _, option := range q.Options {
		out.WriteString("\n- " + option)
	}
	return out.String()
}

type stop struct {
	outcome domain.Outcome
	reason  string
}

func (s *stop) Error() string           { return s.reason }
func (s *stop) Outcome() domain.Outcome { return s.outcome }

type stepsUsedUp struct{ stop }

func (s *stepsUsedUp) Exit() domain.Exit { return domain.ExitIterationCap }
