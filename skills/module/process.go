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

// maxReady is how long a process may take until it is ready, on a machine that has much else to do.
const maxReady = time.Minute

// maxReply bounds what a child may send at a time: an event, with its logs and what JSON adds.
const maxReply = MaxMessage + 2<<20

// process is a child, as its parent sees it. Its methods are not for concurrent use, but for kill and close.
type process struct {
	in    *os.File                // requests
	out   *bufio.Reader           // replies
	pipe  *io.PipeReader          // below out
	stop  context.CancelCauseFunc // ends it, with a cause
	cause func() error            // with which it was ended; nil until then

	stderr head           // what it says of itself
	done   chan struct{}  // closed when it is gone
	result sandbox.Result // how, once it is
	err    error          // why it could not be started

	closing sync.Once
}

var (
	errClosed = errors.New("it is not needed any more")
	errLate   = errors.New("it did not stop when its time was over")
)

// startProcess starts this binary with no file, no network and no environment but its time zone, and waits until it is
// ready. It lives until it is closed, however long ctx does.
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
		// A Go program has a handful of threads, of which the limit is four times that of processes.
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

// ask sends a request and waits for the reply.
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

// within does what waits for the process, and ends the process when ctx ends meanwhile, or the time is over.
func (p *process) within(ctx context.Context, most time.Duration, do func() error) error {
	defer context.AfterFunc(ctx, func() { p.kill(context.Cause(ctx)) })()
	defer time.AfterFunc(most, func() { p.kill(errLate) }).Stop()

	err := do()
	if cause := p.cause(); err != nil && cause != nil {
		return cause // of which the error is a consequence
	}
	return err
}

// kill ends the process, and whoever waits for it.
func (p *process) kill(cause error) {
	p.stop(cause)
	p.pipe.CloseWithError(cause)
}

// close ends the process, and returns when it is gone. It may be called again.
func (p *process) close() {
	p.closing.Do(func() {
		p.in.Close() // on which it ends by itself, if it is not busy
		p.kill(errClosed)
	})
	<-p.done
}

var errMemory = errors.New("its process needed more memory than it was given")

// lost closes a process that did not reply as it should, and says why it did not.
func (p *process) lost(err error) error {
	// One that ends by itself says more than one that was killed for having ended.
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

// ended says how the process ended.
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
