package module

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"rouse/agent/sandbox"
)

// Instance is a VM with a loaded module. Its methods are not safe for concurrent use, except for
// Close.
type Instance struct {
	program *Program
	process *process
	first   *startRequest // nil once sent
	methods []string      // valid methods
	calls   int           // number of calls made
	left    time.Duration // remaining execution time, including the grace period
	over    bool          // the module has ended
}

// Next passes answers to the module and runs it until it waits for the host or ends. The first call
// starts the module and ignores answers. Calls can be answered in any order and at any time.
// Without answers, the module continues if it can. An answer larger than [MaxMessage] rejects its
// call with a RangeError. So does an answer that makes the total size exceed twice that limit. An
// answer that is not JSON rejects its call with a SyntaxError.
//
// Next returns an error only if the host fails, if ctx ends, or if the module has already ended. If
// ctx ends, the error is its cause. After an error, the instance is closed.
func (i *Instance) Next(ctx context.Context, answers []Answer) (Event, error) {
	if i.over {
		return Event{}, errors.New("this module has ended already")
	}

	begin := time.Now()
	r, err := i.process.ask(ctx, i.request(answers), i.left)
	i.left -= time.Since(begin)

	switch {
	case ctx.Err() != nil:
		i.over = true
		return Event{}, errors.Join(context.Cause(ctx), i.Close())
	case err != nil:
		return i.lost(err), nil
	case r.Broken != "":
		i.over = true
		return Event{}, errors.Join(fmt.Errorf("the machine of a module failed: %s", r.Broken), i.Close())
	case r.Event == nil:
		return i.lost(errors.New("it sent no event")), nil
	}

	if err := r.Event.check(i.methods, i.calls); err != nil {
		return i.lost(err), nil
	}
	i.calls += len(r.Event.Calls)

	if e := r.Event.End; e != nil {
		i.over = true
		e.Stack = i.program.stack(e.Stack)
	}

	return *r.Event, nil
}

// request returns the next request to the child.
func (i *Instance) request(answers []Answer) request {
	if i.first != nil {
		defer func() { i.first = nil }()
		return request{Start: i.first}
	}

	next, size := &nextRequest{}, 0
	for _, a := range answers {
		m := answerMessage{ID: a.ID, Value: a.Value, Error: a.Error, Getters: a.Getters}
		if !a.Now.IsZero() {
			m.NowMS = a.Now.UnixMilli()
		}

		if size += len(a.Value); len(a.Value) > MaxMessage || size > 2*MaxMessage {
			size -= len(a.Value)
			m.Value, m.Error = nil, &CallError{Name: "RangeError", Code: "too_large",
				Message: fmt.Sprintf("the answer comes to %d bytes, and %d are the most; ask for less at a time", len(a.Value), MaxMessage)}
		}
		if len(m.Value) > 0 && !json.Valid(m.Value) {
			m.Value, m.Error = nil, &CallError{Name: "SyntaxError", Message: "the answer is no JSON, or is nested too deeply"}
		}
		next.Answers = append(next.Answers, m)
	}

	return request{Next: next}
}

// lost returns the end of a module whose process did not reply correctly.
func (i *Instance) lost(err error) Event {
	i.over = true
	err = i.process.lost(err)
	switch {
	case errors.Is(err, errLate):
		return Event{End: &End{Status: TimedOut, Error: err.Error()}}
	case errors.Is(err, errMemory):
		return Event{End: &End{Status: Memory, Error: err.Error()}}
	case errors.Is(err, errTooLarge):
		return Event{End: tooLargeEnd()}
	}
	return Event{End: &End{Status: Crashed, Error: err.Error()}}
}

// Tier returns the sandbox tier of the process. It blocks until the process has exited.
func (i *Instance) Tier() sandbox.Tier {
	<-i.process.done
	return i.process.result.Tier
}

// Close kills the process and waits until it has exited. It may be called more than once. A
// concurrent Next then returns the Crashed end.
func (i *Instance) Close() error {
	i.process.close()
	return nil
}
