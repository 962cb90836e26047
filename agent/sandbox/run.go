package sandbox

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

const (
	// grace is what a command has for ending by itself once it was asked to.
	grace = 300 * time.Millisecond
	// looks are how far apart the looks at what a tree uses are.
	looks = 100 * time.Millisecond
)

// errMute is the end of what starts a command, without a word of the command.
var errMute = errors.New("what was to confine it ended before it")

// keep is how one system holds on to the processes of a command.
type keep interface {
	begun(*os.Process) error // called once, when the first process has started
	ask()                    // asks them to end
	end()                    // ends them all; may be called again
	used() usage             // by all of them now; nothing where that is not known
	ended(*os.ProcessState) (Result, error)
}

// usage is what the processes of a command use at an instant.
type usage struct {
	memory             int64 // bytes
	processes, threads int
}

// over names the limit that is exceeded.
func (u usage) over(l Limits) string {
	switch {
	case u.memory > l.Memory:
		return KilledByMemory
	case u.processes > l.Processes || u.threads > threadsOf(l):
		return KilledByProcesses
	}
	return ""
}

func threadsOf(l Limits) int { return 4 * l.Processes }

// watch starts cmd, and returns when it has ended, by itself or because it had to.
func watch(ctx context.Context, cmd *exec.Cmd, k keep, c Command) (Result, error) {
	out := &output{last: time.Now()}
	cmd.Stdin, cmd.WaitDelay = c.Stdin, time.Second
	cmd.Stdout, cmd.Stderr = out.to(c.Stdout), out.to(c.Stderr)
	if c.Stderr != nil && same(c.Stdout, c.Stderr) {
		cmd.Stderr = cmd.Stdout // one pipe, so that the order of what is written stays
	}

	begin := time.Now()
	done, err := start(cmd, k)
	if err != nil {
		return Result{}, err
	}

	c.Wall = left(c.Wall, begin)
	why, most := hold(ctx, k, c, out, done)
	k.end() // what it left in the background
	res, err := k.ended(cmd.ProcessState)
	if errors.Is(err, errMute) && why != "" { // it was ended while it was being started
		res, err = Result{Exit: -1, Signal: "SIGKILL"}, nil
	}
	if err != nil {
		return Result{}, err
	}

	res.KilledBy, res.Wall, res.MaxRSS = why, time.Since(begin), max(res.MaxRSS, most)
	return res, nil
}

// left is what is left of a clock that began before, if there is one.
func left(d time.Duration, begin time.Time) time.Duration {
	if d == 0 {
		return 0
	}
	return max(d-time.Since(begin), 1)
}

// start starts the first process, on a thread that stays until it has ended: Linux takes the end
// of the thread for the death of the parent.
func start(cmd *exec.Cmd, k keep) (done <-chan struct{}, err error) {
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()

		defer close(ended)

		if err := cmd.Start(); err != nil {
			started <- err
			return
		}

		err := k.begun(cmd.Process)
		if err != nil {
			k.end()
		}

		started <- err
		_ = cmd.Wait() // how it ended is told by its keeper
	}()
	if err := <-started; err != nil {
		<-ended
		return nil, err
	}

	return ended, nil
}

// hold waits for the end of a command, and brings it about when it is due. It returns why, and
// the most memory that was seen.
func hold(ctx context.Context, k keep, c Command, out *output, done <-chan struct{}) (why string, most int64) {
	var wall, idle, hard <-chan time.Time
	if c.Wall > 0 {
		wall = time.After(c.Wall)
	}

	if c.Idle > 0 {
		idle = time.After(c.Idle)
	}

	cancelled := ctx.Done()
	look := time.NewTicker(looks)
	defer look.Stop()

	stop := func(cause string) {
		if why == "" {
			why = cause
			k.ask()
			hard = time.After(grace)
		}
	}

	for {
		select {
		case <-done:
			return why, most
		case <-cancelled:
			cancelled = nil
			stop(KilledByCancel)
		case <-wall:
			stop(KilledByWall)
		case <-idle:
			if rest := c.Idle - out.quiet(); rest > 0 {
				idle = time.After(rest)
			} else {
				stop(KilledByIdle)
			}
		case <-look.C:
			u := k.used()
			most = max(most, u.memory)
			if limit := u.over(c.Limits); limit != "" {
				if why == "" {
					why = limit
				}
				k.end()
				hard = time.After(looks)
			}
		case <-hard:
			k.end()
			hard = time.After(looks)
		}
	}
}

// output notes when something was written last.
type output struct {
	mu    sync.Mutex
	last  time.Time
	write sync.Mutex // not mu: a writer that blocks must not hold up the clocks
}

func (o *output) quiet() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Since(o.last)
}

// to is w, noted; output that nobody wants counts as output all the same.
func (o *output) to(w io.Writer) io.Writer {
	if w == nil {
		w = io.Discard
	}
	return &noted{o, w}
}

type noted struct {
	output *output
	w      io.Writer
}

func (n *noted) Write(b []byte) (int, error) {
	n.output.mu.Lock()
	n.output.last = time.Now()
	n.output.mu.Unlock()
	n.output.write.Lock()
	defer n.output.write.Unlock()
	return n.w.Write(b)
}

// same says whether two writers are one; those that cannot be compared are not.
func same(a, b io.Writer) (yes bool) {
	defer func() { _ = recover() }()
	return a == b
}
