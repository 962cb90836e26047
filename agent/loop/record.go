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

// Recorder keeps the record; what it refuses does not happen. It may delay writing the end of a
// step or a call, and the start of one that only reads, until the next one starts, or until Flush.
type Recorder interface {
	StartStep(ctx context.Context, s Step) error
	FinishStep(ctx context.Context, s Step) error
	StartCall(ctx context.Context, c Call) error
	FinishCall(ctx context.Context, c Call) error
	// AnswerCall records one that is not made, as its answer is known: from an earlier attempt, from this one, or because it is
	// refused. Nothing begins, so there is no instant at which it is on record without its end.
	AnswerCall(ctx context.Context, c Call) error
	Flush(ctx context.Context) error // the run is over
}

// PriorCall is what an earlier attempt left of a call.
type PriorCall struct {
	// Envelope is nil when the call had started and its result is not known. Then only a call that
	// reads, or whose effect happens once because of a journal, is made again.
	Envelope  json.RawMessage
	Uncertain bool   // it may have changed the world
	Repeat    bool   // the owner decided that it is made again, whatever it did
	Tool      string // the tool that was called; a call of another one is not the same call
}
