package module

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"rouse/agent/sandbox"
)

// maxReply bounds what a child may send at a time: an event, with its logs and what JSON adds.
const maxReply = MaxMessage + 2<<20

// Instance is a machine with a module in it. Its methods are not for concurrent use, but for Close.
type Instance struct {
	program *Program
	first   *startRequest // until it was sent
	methods []string      // that there are

	in   *os.File // requests
	out  *bufio.Reader
	pipe *io.PipeReader // below out
	stop context.CancelCauseFunc

	stderr head           // what the process says of itself
	done   chan struct{}  // closed when the process is gone
	result sandbox.Result // how, once it is
	err    error          // why it could not be started

	left time.Duration // what the module may still take of its own time, with grace
	over bool          // it has ended

	closing sync.Once
}

// errClosed is why a process ends that nobody needs any more.
var errClosed = errors.New("the instance was closed")

// start starts the process and waits until it is ready.
func (i *Instance) start(ctx context.Context, o Options, memory int64) error {
	stdin, in, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("a module cannot be started: %w", err)
	}

	out, stdout := io.Pipe()
	i.in, i.pipe, i.out, i.done = in, out, bufio.NewReader(out), make(chan struct{})

	// The process lives until it is closed, however long ctx does.
	var running context.Context
	running, i.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	c := command(o.MinTier, memory)
	c.Stdin, c.Stdout, c.Stderr = stdin, stdout, &i.stderr
	go func() {
		defer close(i.done)
		i.result, i.err = o.Sandbox.Run(running, c)
		stdout.CloseWithError(io.EOF)
		stdin.Close()
	}()

	var r reply
	if err := i.within(ctx, func() error { return readFrame(i.out, maxReply, &r) }); err != nil {
		cause := context.Cause(ctx)
		if closeErr := i.Close(); closeErr != nil {
			return closeErr
		}
		switch {
		case cause != nil:
			return cause
		case i.err != nil:
			return i.err
		}
		return fmt.Errorf("the process of a module ended before it began: %w", i.ended())
	}

	return nil
}

// within does what waits for the process, and ends the process when ctx ends meanwhile.
func (i *Instance) within(ctx context.Context, do func() error) error {
	defer context.AfterFunc(ctx, func() { i.kill(context.Cause(ctx)) })()
	return do()
}

// kill ends the process, and whoever waits for it.
func (i *Instance) kill(cause error) {
	i.stop(cause)
	i.pipe.CloseWithError(cause)
}

// Next gives the module answers and has it run until it waits for its host again, or ends. The first one begins it, and
// takes no answers. Calls may be answered in any order and at any time; with none the module goes on where it can.
// An answer that is larger than [MaxMessage] rejects its call with a RangeError.
//
// An error means that the host is broken, or that ctx ended, with its cause; the instance is closed then. Whatever a module does is no
// error. After an End there is nothing next.
func (i *Instance) Next(ctx context.Context, answers []Answer) (Event, error) {
	if i.over {
		return Event{}, errors.New("this module has ended already")
	}

	q := i.request(answers)
	late := time.NewTimer(i.left)
	defer late.Stop()
	stopLate := make(chan struct{})
	defer close(stopLate)
	go func() {
		select {
		case <-late.C:
			i.kill(errLate)
		case <-stopLate:
		}
	}()

	begin := time.Now()
	var r reply
	err := i.within(ctx, func() error {
		if err := writeFrame(i.in, q, maxToChild); err != nil {
			return err
		}
		return readFrame(i.out, maxReply, &r)
	})
	i.left -= time.Since(begin)

	switch {
	case ctx.Err() != nil:
		i.over = true
		return Event{}, errors.Join(context.Cause(ctx), i.Close())
	case err != nil:
		return i.lost(err)
	case r.Broken != "":
		i.over = true
		return Event{}, errors.Join(fmt.Errorf("the machine of a module failed: %s", r.Broken), i.Close())
	case r.Event == nil:
		return i.lost(errors.New("it sent no event"))
	}

	if err := r.Event.check(i.methods); err != nil {
		return i.lost(err)
	}

	if e := r.Event.End; e != nil {
		i.over = true
		e.Stack = i.program.stack(e.Stack)
	}

	return *r.Event, nil
}

// errLate is why a process is ended that did not react to an interrupt.
var errLate = errors.New("it did not stop when its time was over")

// request is what the child is asked next.
func (i *Instance) request(answers []Answer) request {
	if i.first != nil {
		defer func() { i.first = nil }()
		return request{Start: i.first}
	}

	next := &nextRequest{}
	for _, a := range answers {
		m := answerMessage{ID: a.ID, Value: a.Value, Error: a.Error, Getters: a.Getters}
		if !a.Now.IsZero() {
			m.NowMS = a.Now.UnixMilli()
		}
		if len(a.Value) > MaxMessage {
			m.Value, m.Error = nil, &CallError{Name: "RangeError", Code: "too_large",
				Message: fmt.Sprintf("the answer comes to %d bytes, and %d are the most; ask for less at a time", len(a.Value), MaxMessage)}
		}
		next.Answers = append(next.Answers, m)
	}

	return request{Next: next}
}

// lost is the end of a module whose process did not answer, or not as it should.
func (i *Instance) lost(err error) (Event, error) {
	i.over = true

	// One that ends by itself says more than one that was killed for having ended.
	select {
	case <-i.done:
	case <-time.After(grace / 2):
	}
	if closeErr := i.Close(); closeErr != nil {
		return Event{}, closeErr
	}

	said := i.stderr.String()
	switch {
	case errors.Is(err, errLate):
		return Event{End: &End{Status: TimedOut, Error: errLate.Error()}}, nil
	case errors.Is(err, errTooLarge):
		return Event{End: tooLargeEnd()}, nil
	case i.result.KilledBy == sandbox.KilledByMemory, strings.Contains(said, "out of memory"), strings.Contains(said, "cannot allocate memory"):
		return Event{End: &End{Status: Memory, Error: "its process needed more memory than it was given"}}, nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.EPIPE), errors.Is(err, errClosed):
		err = i.ended()
	}

	return Event{End: &End{Status: Crashed, Error: err.Error()}}, nil
}

// ended says how the process ended.
func (i *Instance) ended() error {
	line, _, _ := strings.Cut(i.stderr.String(), "\n")
	switch r := i.result; {
	case i.err != nil:
		return i.err
	case r.Signal != "":
		return fmt.Errorf("its process was ended by %s", r.Signal)
	case r.KilledBy != "":
		return fmt.Errorf("its process was ended (%s)", r.KilledBy)
	default:
		return fmt.Errorf("its process ended with exit code %d (%s)", r.Exit, cmp.Or(line, "it said nothing"))
	}
}

// Tier is the confinement of the process, once the instance is closed.
func (i *Instance) Tier() sandbox.Tier {
	<-i.done
	return i.result.Tier
}

// Close ends the process, and returns when it is gone. It may be called again, and beside Next, which then returns the
// end of a module that crashed.
func (i *Instance) Close() error {
	i.closing.Do(func() {
		i.in.Close() // on which it ends by itself, if it is not busy
		i.kill(errClosed)
	})
	<-i.done
	return nil
}

// head keeps the beginning of what is written.
type head struct {
	mu   sync.Mutex
	text []byte
}

func (h *head) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()

	const most = 2000 // bytes
	h.text = append(h.text, b[:min(len(b), most-len(h.text))]...)
	return len(b), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.text)
}
