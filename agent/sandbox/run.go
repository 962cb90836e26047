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

	"rouse/internal/live"
)

const (
	// gracePeriod is how long a command has to end by itself after SIGTERM. It is short, so that the
	// two seconds that [Sandbox.Run] promises hold on a busy machine as well.
	gracePeriod = 300 * time.Millisecond
	// pollInterval is how often the usage of a process tree is measured.
	pollInterval = 100 * time.Millisecond
)

// errNoReport says that the supervisor ended without a report about the command.
var errNoReport = errors.New("what should confine it ended before it started")

// processTree controls the processes of a command in the way of one operating system.
type processTree interface {
	started(*os.Process) error               // called once, when the first process has started
	terminate()                              // asks them to end
	kill()                                   // ends them all; may be called again
	usage() usage                            // of all of them now; zero where that is not known
	result(*os.ProcessState) (Result, error) // called once, when the first process has ended
}

// usage is what the processes of a command use at an instant.
type usage struct {
	memory             int64 // bytes
	processes, threads int
}

// over names the limit that is exceeded, "" when none is.
func (u usage) over(l Limits) string {
	switch {
	case u.memory > l.Memory:
		return KilledByMemory
	case u.processes > l.Processes || u.threads > maxThreads(l):
		return KilledByProcesses
	}
	return ""
}

// maxThreads leaves room for ordinary runtimes: Go, Java and Node start a handful of threads each.
func maxThreads(l Limits) int { return 4 * l.Processes }

// runToEnd starts cmd, and returns when it has ended, by itself or because it had to.
func runToEnd(ctx context.Context, cmd *exec.Cmd, k processTree, c Command) (Result, error) {
	out := &activity{last: time.Now(), seen: live.From(ctx)}
	// A process that escaped may hold the pipes open: after WaitDelay they are closed regardless.
	cmd.Stdin, cmd.WaitDelay = c.Stdin, time.Second
	cmd.Stdout, cmd.Stderr = out.wrap(c.Stdout), out.wrap(c.Stderr)
	if c.Stderr != nil && sameWriter(c.Stdout, c.Stderr) {
		cmd.Stderr = cmd.Stdout // os/exec then uses one pipe, which preserves the order of both streams
	}

	begin := time.Now()
	done, err := start(cmd, k)
	if err != nil {
		return Result{}, err
	}

	c.Wall = remaining(c.Wall, begin)
	killedBy, peak := enforce(ctx, k, c, out, done)

	k.kill() // what it left in the background
	res, err := k.result(cmd.ProcessState)
	if errors.Is(err, errNoReport) && killedBy != "" { // it was killed while it was being started
		res, err = Result{Exit: -1, Signal: "SIGKILL"}, nil
	}
	if err != nil {
		return Result{}, err
	}

	res.KilledBy, res.Wall, res.MaxRSS = killedBy, time.Since(begin), max(res.MaxRSS, peak)
	return res, nil
}

// remaining is what is left of a clock that began at begin. 0 is no clock, so that one which has run out
// still has a nanosecond.
func remaining(d time.Duration, begin time.Time) time.Duration {
	if d == 0 {
		return 0
	}
	return max(d-time.Since(begin), 1)
}

// start starts the first process, from a thread that lives until that process has ended: for Linux
// (PR_SET_PDEATHSIG, which bwrap --die-with-parent sets) the end of the starting thread is the death
// of the parent, and Go moves goroutines between threads unless they are locked.
func start(cmd *exec.Cmd, k processTree) (done <-chan struct{}, err error) {
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)

		if err := cmd.Start(); err != nil {
			started <- err
			return
		}

		err := k.started(cmd.Process)
		if err != nil {
			k.kill()
		}

		started <- err
		_ = cmd.Wait() // how it ended is what processTree.result says
	}()
	if err := <-started; err != nil {
		<-ended
		return nil, err
	}

	return ended, nil
}

// enforce waits until a command has ended, and ends it when a clock or a limit requires that. It
// returns which one did, and the peak of its memory.
func enforce(ctx context.Context, k processTree, c Command, out *activity, done <-chan struct{}) (killedBy string, peak int64) {
	var wall, idle, killNow <-chan time.Time
	if c.Wall > 0 {
		wall = time.After(c.Wall)
	}

	if c.Idle > 0 {
		idle = time.After(c.Idle)
	}

	cancelled := ctx.Done()
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()

	stop := func(cause string) {
		if killedBy == "" {
			killedBy = cause
			k.terminate()
			killNow = time.After(gracePeriod)
		}
	}

	for {
		select {
		case <-done:
			return killedBy, peak
		case <-cancelled:
			cancelled = nil // it stays readable, and would spin this loop
			stop(KilledByCancel)
		case <-wall:
			stop(KilledByWall)
		case <-idle:
			if rest := c.Idle - out.idleFor(); rest > 0 {
				idle = time.After(rest)
			} else {
				stop(KilledByIdle)
			}
		case <-poll.C:
			u := k.usage()
			peak = max(peak, u.memory)
			if limit := u.over(c.Limits); limit != "" {
				// Over a limit there is no grace: it could use up the machine in the meantime.
				if killedBy == "" {
					killedBy = limit
				}
				k.kill()
				killNow = time.After(pollInterval)
			}
		case <-killNow:
			// Again until it is gone: the first kill may go to a supervisor that no longer reacts.
			k.kill()
			killNow = time.After(pollInterval)
		}
	}
}

// activity records when the command last wrote something.
type activity struct {
	mu    sync.Mutex
	last  time.Time
	write sync.Mutex // not mu: a writer that blocks must not stall the clocks
	seen  *live.Run
}

func (o *activity) idleFor() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Since(o.last)
}

// wrap returns w with its writes recorded. Output that nobody wants counts as activity as well.
func (o *activity) wrap(w io.Writer) io.Writer {
	if w == nil {
		w = io.Discard
	}
	return &activityWriter{o, w}
}

type activityWriter struct {
	activity *activity
	w        io.Writer
}

func (n *activityWriter) Write(b []byte) (int, error) {
	n.activity.mu.Lock()
	n.activity.last = time.Now()
	n.activity.mu.Unlock()
	n.activity.seen.Arrived(len(b))
	n.activity.write.Lock()
	defer n.activity.write.Unlock()
	return n.w.Write(b)
}

// sameWriter reports whether two writers are the same one.
func sameWriter(a, b io.Writer) (yes bool) {
	// Comparing values of an uncomparable type panics; those are then not the same (as in os/exec).
	defer func() { _ = recover() }()
	return a == b
}
