package loop

import (
	"context"
	"encoding/json"
	"time"

	"rouse/agent/model"
	"rouse/internal/domain"
)

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
