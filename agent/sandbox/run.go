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
	// gracePeriod is what a command has for ending by itself once it was asked to.
	gracePeriod = 300 * time.Millisecond
	// pollInterval are how far apart the looks at what a tree uses are.
	pollInterval = 100 * time.Millisecond
)

// errNoReport is the end of what starts a command, without a word of the command.
var errNoReport = errors.New("what was to confine it ended before it")

// processTree is how one system holds on to the processes of a command.
type processTree interface {
	started(*os.Process) error // called once, when the first process has started
	terminate()                // asks them to end
	kill()                     // ends them all; may be called again
	usage() usage              // by all of them now; nothing where that is not known
	result(*os.ProcessState) (Result, error)
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
	case u.processes > l.Processes || u.threads > maxThreads(l):
		return KilledByProcesses
	}
	return ""
}

func maxThreads(l Limits) int { return 4 * l.Processes }

// runToEnd starts cmd, and returns when it has ended, by itself or because it had to.
func runToEnd(ctx context.Context, cmd *exec.Cmd, k processTree, c Command) (Result, error) {
	out := &activity{last: time.Now()}
	cmd.Stdin, cmd.WaitDelay = c.Stdin, time.Second
	cmd.Stdout, cmd.Stderr = out.wrap(c.Stdout), out.wrap(c.Stderr)
	if c.Stderr != nil && sameWriter(c.Stdout, c.Stderr) {
		cmd.Stderr = cmd.Stdout // one pipe, so that the order of what is written stays
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
	if errors.Is(err, errNoReport) && killedBy != "" { // it was ended while it was being started
		res, err = Result{Exit: -1, Signal: "SIGKILL"}, nil
	}
	if err != nil {
		return Result{}, err
	}

	res.KilledBy, res.Wall, res.MaxRSS = killedBy, time.Since(begin), max(res.MaxRSS, peak)
	return res, nil
}

// remaining is what is left of a clock that began before, if there is one.
func remaining(d time.Duration, begin time.Time) time.Duration {
	if d == 0 {
		return 0
	}
	return max(d-time.Since(begin), 1)
}

// start starts the first process, on a thread that stays until it has ended: Linux takes the end
// of the thread for the death of the parent.
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
		_ = cmd.Wait() // how it ended is told by its keeper
	}()
	if err := <-started; err != nil {
		<-ended
		return nil, err
	}

	return ended, nil
}

// enforce waits for the end of a command, and brings it about when it is due. It returns why, and
// the most memory that was seen.
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
			cancelled = nil
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
				if killedBy == "" {
					killedBy = limit
				}
				k.kill()
				killNow = time.After(pollInterval)
			}
		case <-killNow:
			k.kill()
			killNow = time.After(pollInterval)
		}
	}
}

// activity notes when something was written last.
type activity struct {
	mu    sync.Mutex
	last  time.Time
	write sync.Mutex // not mu: a writer that blocks must not hold up the clocks
}

func (o *activity) idleFor() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Since(o.last)
}

// wrap is w, noted; output that nobody wants counts as output all the same.
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
	n.activity.write.Lock()
	defer n.activity.write.Unlock()
	return n.w.Write(b)
}

// sameWriter says whether two writers are one; those that cannot be compared are not.
func sameWriter(a, b io.Writer) (yes bool) {
	defer func() { _ = recover() }()
	return a == b
}
