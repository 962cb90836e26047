package loop

import (
	"context"
	"encoding/json"
	"time"

	"rouse/agent/loop/memory"
	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/domain"
)

// Policy are the knobs in which surfaces differ (OSA-01).
type Policy struct {
	Name            string
	BudgetWarning   int    // tell the model when this many steps or fewer are left; 0 never
	EmptyRetries    int    // nudges after an empty answer
	TurnRetries     int    // un-charged repeats of a turn that failed on the model's side
	Hasty           bool   // they are made at once: who is asked does not need the pause
	StopOnRejection bool   // a rejected call ends the run
	Dedupe          bool   // a reading call whose result still holds is not made again (OSA-12)
	DedupeNotice    bool   // and the model is told
	Bias            bool   // advice after listings, guesses and repetitions (OSA-14)
	TodoStale       int    // steps after which an unwritten todo list with open items is spoken of; 0 never
	DataSteps       int    // steps that may be free because they only move rows (OSA-23)
	Plain           bool   // a playbook: steps are not counted, nobody is nudged
	LastWord        string // what to write when the steps are used up; "" for what was done
	Phases          Phases
}

// Headless is the policy of models that nobody watches.
func Headless() Policy {
	return Policy{Name: "headless", BudgetWarning: 3, EmptyRetries: 2, TurnRetries: 3, Dedupe: true, Bias: true, TodoStale: 4, DataSteps: 16}
}

// Playbook is the policy of fixed lists of calls.
func Playbook() Policy { return Policy{Name: "playbook", Plain: true} }

// Bounds are the hard limits of one attempt; 0 means the default, below 0 none.
type Bounds struct {
	Steps, Calls int           // 30 and 100
	Wall         time.Duration // 10m
	Idle         time.Duration // 5m without an event of the model; calls have times of their own
	Tokens       int64         // none
	CostMicroUSD int64         // none; Options.Budget knows what a turn costs, and keeps it
	Output       int64         // bytes that the model writes; 1 MiB
}

func (b Bounds) withDefaults() Bounds {
	set := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}

	steps, calls, wall, idle := int64(b.Steps), int64(b.Calls), int64(b.Wall), int64(b.Idle)
	set(&steps, 30)
	set(&calls, 100)
	set(&wall, int64(10*time.Minute))
	set(&idle, int64(5*time.Minute))
	set(&b.Output, 1<<20)
	b.Steps, b.Calls, b.Wall, b.Idle = int(steps), int(calls), time.Duration(wall), time.Duration(idle)

	return b
}

// After is what is left for an attempt that goes on where an interrupted one had taken so
// much: bounds are those of a run. One step and one call are always left, to end it properly.
func (b Bounds) After(steps, calls int, tokens int64) Bounds {
	b = b.withDefaults()
	if b.Steps > 0 {
		b.Steps = max(b.Steps-steps, 1)
	}

	if b.Calls > 0 {
		b.Calls = max(b.Calls-calls, 1)
	}

	if b.Tokens > 0 {
		b.Tokens = max(b.Tokens-tokens, 1)
	}
	return b
}

// Spent says whether so much is all that there was.
func (b Bounds) Spent(steps int, tokens int64) bool {
	b = b.withDefaults()
	return b.Steps > 0 && steps >= b.Steps || b.Tokens > 0 && tokens >= b.Tokens
}

// AfterCost is After for what the turns have cost.
func (b Bounds) AfterCost(microUSD int64) Bounds {
	if b.CostMicroUSD > 0 {
		b.CostMicroUSD = max(b.CostMicroUSD-microUSD, 1)
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

// stricter takes no bound, which is 0 or less, for the weakest.
func stricter[N int | int64 | time.Duration](a, b N) N {
	if a <= 0 || (b > 0 && b < a) {
		return b
	}
	return a
}

// Step is one model turn, for the record.
type Step struct {
	Number                int
	Within                string          // the key of the call that it is a step of; "" where it is one of the run
	Message               json.RawMessage // a model.Message
	Text                  string
	Model                 string // who answered
	Notices               []string
	Usage                 model.Usage
	CostMicroUSD          int64
	StartedAt, FinishedAt time.Time
}

// Call is one tool call, for the record.
type Call struct {
	Step, Index           int
	ID, Key, Tool         string
	Args                  json.RawMessage
	Effect                domain.Effect
	State                 domain.CallState
	Envelope              json.RawMessage
	StartedAt, FinishedAt time.Time
}

// Recorder keeps the record; what it refuses does not happen. It may hold back that a step or
// a call has ended until something begins, or until Flush.
type Recorder interface {
	StartStep(ctx context.Context, s Step) error
	FinishStep(ctx context.Context, s Step) error
	StartCall(ctx context.Context, c Call) error
	FinishCall(ctx context.Context, c Call) error
	Flush(ctx context.Context) error // the run is over
}

// Past is what an earlier attempt left of a call.
type Past struct {
	// Envelope is nil when the call had begun and its result is not known. Only a call that
	// reads, or whose effects happen once by a journal, is made again then.
	Envelope  json.RawMessage
	Uncertain bool   // it may have changed the world
	Again     bool   // its owner wants it made again, whatever it did
	Tool      string // that was called; another one at its place is no repetition
}

// Budget is asked for room before each turn of a model, also before one that is asked again,
// and told afterwards what the turn took.
type Budget interface {
	// Reserve sets aside what a turn may take at most. A refusal is an error with an Outcome,
	// and perhaps an Exit, with which the run ends; any other error means that the host is broken.
	Reserve(ctx context.Context, step int, most model.Usage) (id int64, err error)
	// Settle gives back what of it was not taken, and says what was, and its cost. used is
	// nil when nobody reported it.
	Settle(ctx context.Context, id int64, used *model.Usage) (took model.Usage, costMicroUSD int64, err error)
}

// Options are one attempt.
type Options struct {
	Provider    model.Provider
	Registry    *tool.Registry
	Recorder    Recorder
	Policy      Policy
	Bounds      Bounds
	Budget      Budget // nil: nothing is counted
	Gate        Gate   // nil: every call is made
	Invocation  tool.Invocation
	System      string
	Messages    []model.Message
	Model       string // the name of who answers, for the record
	MaxOutput   int
	Window      int // tokens that the model's context holds; 0: 128,000
	Temperature *float64
	Fallback    *Fallback // nil: nobody takes over
	// Past holds the calls of earlier attempts by key: a recorded result is replayed, an
	// uncertain call is not repeated.
	Past map[string]Past
	// Pending are the calls at the end of Messages that have no result there yet.
	Pending []model.Call
	// CutOff says that the last attempt was interrupted: the end of Messages may be the end
	// of the run, of which only the record is missing.
	CutOff bool
	// Spent says that the attempts that ended with a question left no step: what is pending is
	// done, and the run is closed. Else each answer of a person would give it one step more.
	Spent bool
	// Board is the todo list, which a run in phases has for its plan; nil where there is none.
	Board *memory.Board
	// Of a run in phases: how long the calls of earlier attempts took, by key, and how many
	// steps those have used up.
	Took  map[string]time.Duration
	Taken int
	// Reducer answers the reduce calls where there is such a tool.
	Reducer *Reducer
}

// Result is how an attempt ended.
type Result struct {
	Exit           domain.Exit
	Outcome        domain.Outcome
	Summary, Error string
	Verified       bool
	Steps, Calls   int
	Usage          model.Usage
	CostMicroUSD   int64
	// Wait is what the run asks a person, and Approval what it asks leave for; Outcome is ""
	// then. The call that needs leave was not made, nor was any of the same answer.
	Wait     *Question
	Approval *tool.Approval
}

// Question is what a run needs to know before it can go on (OSA-18).
type Question struct {
	Question      string   `json:"question"`
	Options       []string `json:"options,omitempty"`
	AllowMultiple bool     `json:"allow_multiple,omitempty"`
}

// stop is a bound that was used up, as the cause of the context.
type stop struct {
	outcome domain.Outcome
	reason  string
}

func (s *stop) Error() string           { return s.reason }
func (s *stop) Outcome() domain.Outcome { return s.outcome }
