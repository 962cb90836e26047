package agent

import (
	"context"
	"sync"
	"time"

	"rouse/agent/history"
	"rouse/agent/loop"
	"rouse/internal/domain"
)

// callTimes notes when calls began and ended. A module sees the time only by them, so that it sees
// the same times in each attempt.
type callTimes struct {
	loop.Recorder
	prior      map[string]time.Time // ends in earlier attempts, by key
	priorBegun map[string]time.Time // beginnings there

	mu        sync.Mutex
	at, begun map[string]time.Time
}

// newCallTimes notes the calls of an attempt that goes on from what is past, beside the record.
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
		at = call.StartedAt.Truncate(time.Millisecond) // as the ledger keeps it
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
