package loop

import (
	"time"

	"rouse/agent/loop/memory"
	"rouse/agent/model"
	"rouse/agent/tool"
)

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
