package agent

import (
	"context"
	"sync"
	"time"

	"rouse/agent/history"
	"rouse/agent/loop"
	"rouse/internal/domain"
)

// callTimes records the start and end times of calls. A module's clock shows only these times, so
// that the module sees the same times in each attempt.
type callTimes struct {
	loop.Recorder
	prior      map[string]time.Time // end times in earlier attempts, by key
	priorBegun map[string]time.Time // start times in earlier attempts, by key

	mu        sync.Mutex
	at, begun map[string]time.Time // end and start times, by key
}

// newCallTimes returns a recorder that notes call times and passes each call on to record. past
// supplies the times of earlier attempts.
func newCallTimes(record loop.Recorder, past history.History) *callTimes {
	return &callTimes{Recorder: record, prior: past.MadeAt, priorBegun: past.BegunAt, at: map[string]time.Time{}, begun: map[string]time.Time{}}
}

// StartCall implements loop.Recorder.
func (c *callTimes) StartCall(ctx context.Context, call loop.Call) error {
	c.noteStart(call)
	return c.Recorder.StartCall(ctx, call)
}

// FinishCall implements loop.Recorder.
func (c *callTimes) FinishCall(ctx context.Context, call loop.Call) error {
	c.noteEnd(call)
	return c.Recorder.FinishCall(ctx, call)
}

// AnswerCall implements loop.Recorder.
func (c *callTimes) AnswerCall(ctx context.Context, call loop.Call) error {
	c.noteStart(call)
	c.noteEnd(call)
	return c.Recorder.AnswerCall(ctx, call)
}

func (c *callTimes) noteStart(call loop.Call) {
	at, known := c.priorBegun[call.Key]
	if !known {
		at = call.StartedAt.Truncate(time.Millisecond) // the precision of the ledger
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun[call.Key] = at
}

func (c *callTimes) noteEnd(call loop.Call) {
	at, known := c.prior[call.Key]
	if call.State != domain.CallReplayed || !known {
		at = call.FinishedAt.Truncate(time.Millisecond)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.at[call.Key] = at
}

func (c *callTimes) of(key string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at[key]
}

func (c *callTimes) beginning(key string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun[key]
}
