package module

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"rouse/agent/sandbox"
)

// Instance is a machine with a module in it. Its methods are not for concurrent use, but for Close.
type Instance struct {
	program *Program
	process *process
	first   *startRequest // until it was sent
	methods []string      // that there are
	calls   int           // that were made
	left    time.Duration // what the module may still take of its own time, with grace
	over    bool          // it has ended
}

// Next gives the module answers and has it run until it waits for its host again, or ends. The first one begins it, and
// takes no answers. Calls may be answered in any order and at any time; with none the module goes on where it can. An
// answer that is larger than [MaxMessage], or the last of some that are twice as large, rejects its call with a RangeError,
// and one that is no JSON with a SyntaxError.
//
// An error means that the host is broken, or that ctx ended, with its cause; the instance is closed then. Whatever a
// module does is no error. After an End there is nothing next.
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

// request is what the child is asked next.
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

// lost is the end of a module whose process did not reply as it should.
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

// Tier is the confinement of the process, once the instance is closed.
func (i *Instance) Tier() sandbox.Tier {
	<-i.process.done
	return i.process.result.Tier
}

// Close ends the process, and returns when it is gone. It may be called again, and beside Next, which then returns the
// end of a module that crashed.
func (i *Instance) Close() error {
	i.process.close()
	return nil
}
