package module

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"rouse/agent/sandbox"
)

// maxReady is the startup timeout of a process. It allows for a busy system.
const maxReady = time.Minute

// maxReply is the maximum size of a child's message: an event with its logs and JSON overhead.
const maxReply = MaxMessage + 2<<20

// process is a child process, as seen by its parent. Its methods are not safe for concurrent use,
// except for kill and close.
type process struct {
	in    *os.File                // requests
	out   *bufio.Reader           // replies
	pipe  *io.PipeReader          // source of out
	stop  context.CancelCauseFunc // kills the process with a cause
	cause func() error            // cause of the kill; nil before

	stderr head           // beginning of its standard error
	done   chan struct{}  // closed when the process has exited
	result sandbox.Result // valid after done
	err    error          // start error; valid after done

	closing sync.Once
}

var (
	errClosed = errors.New("it is not needed any more")
	errLate   = errors.New("it did not stop when its time was over")
)

// startProcess starts this binary and waits until it is ready. The process has no files, no
// network, and TZ as its only environment variable. It runs until it is closed, even if ctx ends.
func startProcess(ctx context.Context, s *sandbox.Sandbox, minTier sandbox.Tier, zone string, memory int64) (*process, error) {
	stdin, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("the process of a module cannot be started: %w", err)
	}

	out, stdout := io.Pipe()
	p := &process{in: in, pipe: out, out: bufio.NewReader(out), done: make(chan struct{})}
	running, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	p.stop, p.cause = stop, func() error { return context.Cause(running) }

	dir := "/"
	if runtime.GOOS == "windows" {
		dir = os.TempDir()
	}
	c := sandbox.Command{
		Self: true, Argv: []string{"rouse", childName}, Dir: dir, MinTier: minTier,
		Stdin: stdin, Stdout: stdout, Stderr: &p.stderr,
		// A Go program has few threads. The sandbox allows four times as many threads as processes.
		Limits: sandbox.Limits{Memory: memory, Processes: 8, OpenFiles: 32, FileSize: 1},
	}
	if zone != "" {
		c.Env = []string{"TZ=" + zone}
	}

	go func() {
		defer close(p.done)
		p.result, p.err = s.Run(running, c)
		stdout.CloseWithError(io.EOF)
		stdin.Close()
	}()

	var r reply
	if err := p.within(ctx, maxReady, func() error { return readFrame(p.out, maxReply, &r) }); err != nil {
		err = p.lost(err)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case p.err != nil:
			return nil, p.err
		}
		return nil, fmt.Errorf("the process of a module ended before it began: %w", err)
	}

	return p, nil
}

// ask sends a request and waits for the reply. It waits at most the duration most.
func (p *process) ask(ctx context.Context, q request, most time.Duration) (reply, error) {
	var r reply
	err := p.within(ctx, most, func() error {
		if err := writeFrame(p.in, q, maxToChild); err != nil {
			return err
		}
		return readFrame(p.out, maxReply, &r)
	})
	return r, err
}

// within calls do, which waits for the process. It kills the process if ctx ends or the time runs
// out.
func (p *process) within(ctx context.Context, most time.Duration, do func() error) error {
	defer context.AfterFunc(ctx, func() { p.kill(context.Cause(ctx)) })()
	defer time.AfterFunc(most, func() { p.kill(errLate) }).Stop()

	err := do()
	if cause := p.cause(); err != nil && cause != nil {
		return cause // err is a consequence of the cause
	}
	return err
}

// kill kills the process and unblocks its readers.
func (p *process) kill(cause error) {
	p.stop(cause)
	p.pipe.CloseWithError(cause)
}

// close kills the process and waits until it has exited. It may be called more than once.
func (p *process) close() {
	p.closing.Do(func() {
		// An idle process exits by itself.
		p.in.Close()
		p.kill(errClosed)
	})
	<-p.done
}

var errMemory = errors.New("its process needed more memory than it was given")

// lost closes a process that did not reply correctly and returns the reason.
func (p *process) lost(err error) error {
	// Let the process exit by itself first, because its own exit is more informative than a kill.
	if !errors.Is(err, errLate) && !errors.Is(err, errClosed) {
		select {
		case <-p.done:
		case <-time.After(grace / 2):
		}
	}
	p.close()

	switch said := p.stderr.String(); {
	case errors.Is(err, errLate):
		return err
	case p.result.KilledBy == sandbox.KilledByMemory, strings.Contains(said, "out of memory"), strings.Contains(said, "cannot allocate memory"):
		return errMemory
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.EPIPE), errors.Is(err, errClosed):
		return p.ended()
	}
	return err
}

// ended returns an error that describes the exit of the process.
func (p *process) ended() error {
	line, _, _ := strings.Cut(p.stderr.String(), "\n")
	switch r := p.result; {
	case p.err != nil:
		return p.err
	case r.Signal != "":
		return fmt.Errorf("its process was ended by %s", r.Signal)
	case r.KilledBy != "":
		return fmt.Errorf("its process was ended (%s)", r.KilledBy)
	default:
		return fmt.Errorf("its process ended with exit code %d (%s)", r.Exit, cmp.Or(line, "it said nothing"))
	}
}

// head keeps the beginning of the output written to it.
type head struct {
	mu   sync.Mutex
	text []byte
}

func (h *head) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()

	const most = 2000 // in bytes
	h.text = append(h.text, b[:min(len(b), most-len(h.text))]...)
	return len(b), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.text)
}
