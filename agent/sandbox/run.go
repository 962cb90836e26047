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

	"rouse/internal/progress"
)

const (
	// gracePeriod is the time between SIGTERM and the kill. It is short, so that [Sandbox.Run]
	// keeps its promise of two seconds on a busy machine.
	gracePeriod = 300 * time.Millisecond
	// pollInterval is the interval for measuring the usage of a process tree.
	pollInterval = 100 * time.Millisecond
)

// errNoReport means that the supervisor ended without a report about the command.
var errNoReport = errors.New("what should confine it ended before it started")

// processTree controls the processes of a command on one operating system.
type processTree interface {
	started(*os.Process) error               // called once, after the first process has started
	terminate()                              // asks the processes to end
	kill()                                   // kills all processes; may be called again
	usage() usage                            // current usage of all processes; zero if unknown
	result(*os.ProcessState) (Result, error) // called once, after the first process has ended
}

// usage is the current resource usage of a command's processes.
type usage struct {
	memory             int64 // bytes
	processes, threads int
}

// over returns the exceeded limit, or "" if there is none.
func (u usage) over(l Limits) string {
	switch {
	case u.memory > l.Memory:
		return KilledByMemory
	case u.processes > l.Processes || u.threads > maxThreads(l):
		return KilledByProcesses
	}
	return ""
}

// maxThreads returns the limit of threads. Runtimes such as Go, Java and Node start several threads
// per process.
func maxThreads(l Limits) int { return 4 * l.Processes }

// runToEnd starts cmd, waits for its end, and ends it if a timeout or limit requires it.
func runToEnd(ctx context.Context, cmd *exec.Cmd, k processTree, c Command) (Result, error) {
	out := &activity{last: time.Now(), seen: progress.From(ctx)}
	// An escaped process may hold the pipes open. They are closed after WaitDelay.
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

	k.kill() // kills remaining background processes
	res, err := k.result(cmd.ProcessState)
	if errors.Is(err, errNoReport) && killedBy != "" { // it was killed during its start
		res, err = Result{Exit: -1, Signal: "SIGKILL"}, nil
	}
	if err != nil {
		return Result{}, err
	}

	res.KilledBy, res.Wall, res.MaxRSS = killedBy, time.Since(begin), max(res.MaxRSS, peak)
	return res, nil
}

// remaining returns the remaining time of a timeout that started at begin. Zero means no timeout,
// so an expired timeout returns 1 ns.
func remaining(d time.Duration, begin time.Time) time.Duration {
	if d == 0 {
		return 0
	}
	return max(d-time.Since(begin), 1)
}

// start starts the first process from a thread that lives until the process has ended. Linux treats
// the end of the starting thread as the death of the parent (PR_SET_PDEATHSIG, set by bwrap
// --die-with-parent). Go moves goroutines between threads unless they are locked.
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
		_ = cmd.Wait() // processTree.result returns the result
	}()
	if err := <-started; err != nil {
		<-ended
		return nil, err
	}

	return ended, nil
}

// enforce waits until a command has ended, and ends it if a timeout or limit requires it. It
// returns the reason and the peak memory.
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
			cancelled = nil // it stays readable and would spin this loop
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
				// No grace period after a limit: the command could exhaust the machine in the
				// meantime.
				if killedBy == "" {
					killedBy = limit
				}
				k.kill()
				killNow = time.After(pollInterval)
			}
		case <-killNow:
			// Repeat until it has ended: the first kill may go to a hanging supervisor.
			k.kill()
			killNow = time.After(pollInterval)
		}
	}
}

// activity records the time of the command's last output.
type activity struct {
	mu    sync.Mutex
	last  time.Time
	write sync.Mutex // separate from mu: a writer that blocks must not stall the timeouts
	seen  *progress.Run
}

func (o *activity) idleFor() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Since(o.last)
}

// wrap returns w with its writes recorded. Discarded output counts as activity too.
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

// sameWriter reports whether two writers are equal.
func sameWriter(a, b io.Writer) (yes bool) {
	// Comparing values of an uncomparable type panics. Such values are not equal (as in os/exec).
	defer func() { _ = recover() }()
	return a == b
}
