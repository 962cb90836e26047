package loop

import (
	"time"

	"rouse/agent/loop/memory"
	"rouse/agent/model"
	"rouse/agent/tool"
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

	// The calls of earlier attempts, by key: a recorded result is replayed, an uncertain call is
	// not repeated.
	PriorCalls map[string]PriorCall
	// The calls at the end of Messages that have no result there yet.
	PendingCalls []model.Call
	// The last attempt was interrupted: the end of Messages may be the end of the run, and only
	// its record is missing.
	Interrupted bool
	// The attempts that ended with a question used up all steps: the pending calls are made, and
	// the run is closed. Otherwise each answer of a person would give it one step more.
	Exhausted bool
	// Of a run in phases: how long the calls of earlier attempts took, by key, and how many steps
	// those attempts used.
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
