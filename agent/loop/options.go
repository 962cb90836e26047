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

// Options are one attempt.
type Options struct {
	Provider   model.Provider
	Registry   *tool.Registry
	Recorder   Recorder
	Policy     Policy
	Bounds     Bounds
	Budget     Budget     // nil: no cost is counted
	Authorizer Authorizer // nil: every call is made
	Invocation tool.Invocation
	System     string
	Messages   []model.Message
	Model      string // the name of the model, for the record
	MaxOutput  int
	Window     int // tokens that the model's context holds; 0: 128,000
	// KeepTools says that the next run with the same tools is expected while a provider still has what it caches for an hour.
	KeepTools bool
	// LearnContext is told the size of the context that a server names when it refuses a request as too long. Optional.
	LearnContext func(tokens int)
	Temperature  *float64
	Fallback     *Fallback // nil: no other model takes over

	// PriorCalls are the calls of earlier attempts, by key.
	PriorCalls map[string]PriorCall
	// The calls at the end of Messages that have no result there yet.
	PendingCalls []model.Call
	// Interrupted: the end of Messages may be the end of the run, without its record.
	Interrupted bool
	// Exhausted: earlier attempts used up all steps. Otherwise each answer of a person would give
	// one step more.
	Exhausted bool
	// Of a run in phases: durations of earlier calls, by key, and steps of earlier attempts.
	PriorDurations map[string]time.Duration
	PriorSteps     int

	// Now returns the time to add to the result of the call with a key, or "". Optional.
	Now func(key string) string

	// The todo list, which is also the plan of a run in phases; nil: there is none.
	Board *memory.Board
	// Reducer answers the reduce calls, if the run has that tool.
	Reducer *Reducer
	// Inner makes the runs within calls that stand for them; nil: there are none.
	Inner *Inner
	// Completer asks a model for a run that none answers in; nil: the run asks none.
	Completer *Completer
}

// Policy is what differs between kinds of runs (OSA-01).
type Policy struct {
	Name          string
	BudgetWarning int // tell the model when this many steps or fewer are left; 0 never
	EmptyRetries  int // how often in a row to ask again after an empty answer
	TurnRetries   int // repeats, not charged, of a turn that failed on the model's side
	// UnreachableRetries replaces TurnRetries for an unreachable server, if it is more: about 90
	// seconds.
	UnreachableRetries int
	NoRetryDelay       bool // without a pause before them: a recording answers, not a server
	StopOnRejection    bool // a rejected call ends the run
	EndOnQuestion      bool // a question ends the run as its result: the asker sends the request again with the answer (OSA-06)
	Dedupe             bool // a reading call whose result still holds is not made again (OSA-12)
	DedupeNotice       bool // and the model gets a notice about it
	Advice             bool // advice after listings, guesses and repetitions (OSA-14)
	StaleTodoSteps     int  // steps without a change after which a todo list with open items gets a notice; 0 never
	// FreeSteps is how many steps are not charged: those that only move rows (OSA-23), and of
	// reductions. Empty answers are never charged (OSA-04).
	FreeSteps     int
	NoModel       bool   // no model answers (a playbook): each call is a step, and nothing is said to it
	ClosingPrompt string // what the last text is to say when the steps are used up; "": what was done
	Phases        Phases
}

// Headless is the policy of models that nobody watches.
func Headless() Policy {
	return Policy{Name: "headless", BudgetWarning: 3, EmptyRetries: 2, TurnRetries: 3, UnreachableRetries: 7, Dedupe: true, Advice: true, StaleTodoSteps: 4, FreeSteps: 16}
}

// ChatSteps is how many steps a run has that a chat asked for, where no bound is given (OSA-01).
const ChatSteps = 15

// Chat is the policy of conversations: a rejected call and a question end the run.
func Chat() Policy {
	p := Headless()
	p.Name, p.StopOnRejection, p.DedupeNotice, p.EndOnQuestion = "chat", true, true, true
	return p
}

// Playbook is the policy of fixed lists of calls.
func Playbook() Policy { return Policy{Name: "playbook", NoModel: true} }

// Phases are the limits of runs that work in phases (AYA-11). MaxSteps 0 means no phases.
type Phases struct {
	BaseSteps int // to begin with
	PerCall   int // steps that each action adds
	MaxSteps  int // at most
	Idle      int // steps in a row without an action that end a run
	Repeats   int // how often the same action may be taken in a row
	View      int // bytes of the working memory that a model sees
}

// Phased is the policy of models that work in phases and keep a working memory.
func Phased() Policy {
	p := Headless()
	p.Name, p.StaleTodoSteps = "phased", 0
	p.Phases = Phases{BaseSteps: 12, PerCall: 2, MaxSteps: 20, Idle: 4, Repeats: 3, View: 8 << 10}
	return p
}

// Bounds are the hard limits of one attempt; 0 means the default, below 0 none.
type Bounds struct {
	Steps, Calls int           // 30, or without a model none, and 100
	Wall         time.Duration // 10m
	Idle         time.Duration // 5m without an event of the model; calls have times of their own
	Tokens       int64         // none
	CostMicroUSD int64         // none; Options.Budget knows what a turn costs, and keeps it
	Output       int64         // bytes that the model writes; 1 MiB
}

func (b Bounds) withDefaults() Bounds {
	b.Steps, b.Calls = cmp.Or(b.Steps, 30), cmp.Or(b.Calls, 100)
	b.Wall, b.Idle = cmp.Or(b.Wall, 10*time.Minute), cmp.Or(b.Idle, 5*time.Minute)
	b.Output = cmp.Or(b.Output, 1<<20)
	return b
}

// After returns what is left for an attempt that continues an interrupted one. One step and one
// call are always left.
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

// Exhausted says whether these steps or tokens are all that there was.
func (b Bounds) Exhausted(steps int, tokens int64) bool {
	b = b.withDefaults()
	return b.Steps > 0 && steps >= b.Steps || b.Tokens > 0 && tokens >= b.Tokens
}

// AfterCost is After for the cost of the turns.
func (b Bounds) AfterCost(microUSD int64) Bounds {
	if b.CostMicroUSD > 0 {
		b.CostMicroUSD = max(b.CostMicroUSD-microUSD, 1)
	}
	return b
}

// AfterTokens is After for the tokens alone, of a run whose steps and calls are counted from the start again.
func (b Bounds) AfterTokens(tokens int64) Bounds {
	if b.Tokens > 0 {
		b.Tokens = max(b.Tokens-tokens, 1)
	}
	return b
}

// Within is the stricter of both, bound by bound.
func (b Bounds) Within(o Bounds) Bounds {
	b, o = b.withDefaults(), o.withDefaults()
	return Bounds{
		Steps: stricter(b.Steps, o.Steps), Calls: stricter(b.Calls, o.Calls), Wall: stricter(b.Wall, o.Wall),
		Idle: stricter(b.Idle, o.Idle), Tokens: stricter(b.Tokens, o.Tokens), Output: stricter(b.Output, o.Output),
		CostMicroUSD: stricter(b.CostMicroUSD, o.CostMicroUSD),
	}
}

// stricter is the smaller bound; 0 or less is no bound, and weaker than any.
func stricter[N int | int64 | time.Duration](a, b N) N {
	if a <= 0 || (b > 0 && b < a) {
		return b
	}
	return a
}

// Step is one model turn, for the record.
type Step struct {
	Number     int
	ParentCall string          // the key of the call that it is a step within; "" when it is one of the run
	Message    json.RawMessage // a model.Message
	Text       string
	Model      string // who answered
	Notices    []string
	Retried    model.Retried // what failed before the answer came
	Spent
	StartedAt, FinishedAt time.Time
}

// Call is one tool call, for the record.
type Call struct {
	Step, Index           int
	ID, Key, Tool         string
	Args                  json.RawMessage
	Effect                domain.Effect
	Once                  bool // made again it changes nothing, and its result says nothing (tool.Spec)
	State                 domain.CallState
	Envelope              json.RawMessage
	StartedAt, FinishedAt time.Time
}

// Recorder keeps the record; what it refuses does not happen. It may delay the end of a step or
// call, and the start of one that only reads.
type Recorder interface {
	StartStep(ctx context.Context, s Step) error
	FinishStep(ctx context.Context, s Step) error
	StartCall(ctx context.Context, c Call) error
	FinishCall(ctx context.Context, c Call) error
	// AnswerCall records a call that is not made, because its answer is known or it is refused.
	AnswerCall(ctx context.Context, c Call) error
	Flush(ctx context.Context) error // the run is over
}

// PriorCall is what an earlier attempt left of a call.
type PriorCall struct {
	// Envelope is nil if the call had started and its result is not known.
	Envelope  json.RawMessage
	Uncertain bool   // it may have changed the world
	Repeat    bool   // the owner decided that it is made again, whatever it did
	Tool      string // the tool that was called; a call of another one is not the same call
}

// Result is how an attempt ended.
type Result struct {
	Exit           domain.Exit
	Outcome        domain.Outcome
	Summary, Error string
	Kind           string // of the error, as its provider calls it; "" where it says nothing
	Verified       bool
	Steps          int // turns that were asked of the model, charged or not; those of reductions, too
	Calls          int
	Answered       int // turns that a model answered
	Spent
	// Failure is the failure of a model that ended the run, nil where none did.
	Failure error
	// Wait is what the run asks a person, and Approval the call that needs one. Outcome is "" then.
	Wait     *Question
	Approval *tool.ApprovalRequest
}

// Question is what a run needs to know before it can continue (OSA-18).
type Question struct {
	Kind          string   `json:"kind,omitempty"`  // of an item in the inbox; "": input
	Title         string   `json:"title,omitempty"` // what it is about, in a line; "": nothing that the question does not say
	Question      string   `json:"question"`
	Options       []string `json:"options,omitempty"`
	AllowMultiple bool     `json:"allow_multiple,omitempty"`
	// InputSchema is the JSON Schema of the answer; nil: it is a text.
	InputSchema json.RawMessage `json:"input_schema,omitempty"`
	// Call is the key of the call that asked.
	Call string `json:"-"`
	// SignIn is the sign-in that it asks for, as AGENT/SKILL/PROVIDER; "": it asks for none.
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
