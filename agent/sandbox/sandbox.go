package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Tier is how strongly commands are confined here.
type Tier string

// The tiers, strongest first.
const (
	TierA Tier = "A" // Linux: bubblewrap, Landlock, seccomp
	TierB Tier = "B" // Linux: Landlock, seccomp; macOS: Seatbelt
	TierC Tier = "C" // Windows: restricted token, job object; the network is not confined
	TierD Tier = "D" // nothing
)

// AtLeast says whether t confines as strongly as min, or more so. No tier is at least a name that is none.
func (t Tier) AtLeast(min Tier) bool {
	return t.Valid() && min.Valid() && t <= min
}

// Valid says whether t is one of the four.
func (t Tier) Valid() bool {
	return t == TierA || t == TierB || t == TierC || t == TierD
}

// Options are what a Sandbox is made with.
type Options struct {
	// Off is the owner's reason for `sandbox: off`. With one, every command runs on tier D,
	// as a plain process that merely ends in time.
	Off string
	// Most is the strongest tier that is used, A when empty: for trials and figures.
	Most Tier
}

// Sandbox starts confined commands. It is safe for concurrent use.
type Sandbox struct {
	options Options
	host    *host // what this system has for it

	mu      sync.Mutex
	probed  bool
	tier    Tier
	reasons []string
}

// New finds out nothing yet: the first command, or [Sandbox.Tier], does.
func New(o Options) (*Sandbox, error) {
	if o.Most == "" {
		o.Most = TierA
	}
	if !o.Most.Valid() {
		return nil, fmt.Errorf("sandbox: there is no tier %q; tiers are A, B, C and D", o.Most)
	}
	if o.Off != "" && strings.TrimSpace(o.Off) == "" {
		return nil, errors.New("sandbox: it can be off for a reason only, and the one given is blank")
	}

	h, err := newHost()
	if err != nil {
		return nil, err
	}

	return &Sandbox{options: o, host: h}, nil
}

// Close gives back what the Sandbox holds. No command may be running.
func (s *Sandbox) Close() error { return s.host.close() }

// Tier is the strongest tier of this machine, and why it is not a stronger one: a line for each
// thing that lacks, with what to do about it. The answer is found by trial starts at first, and
// kept: what is installed later counts from the next start of the daemon.
//
// With [Options.Off] the tier is D, and the one line is the owner's reason.
func (s *Sandbox) Tier(ctx context.Context) (Tier, []string) {
	if s.options.Off != "" {
		return TierD, []string{"it is off: " + s.options.Off}
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.probed {
		return s.tier, s.reasons
	}

	tier, reasons := s.host.probe(ctx, s.options.Most)
	if ctx.Err() != nil {
		return TierD, []string{"finding out was cut off: " + context.Cause(ctx).Error()}
	}

	s.probed, s.tier, s.reasons = true, tier, reasons
	return tier, reasons
}

// Command is a program to run, and all that it is given.
//
// Paths are absolute; links in Read, Write and Dir are followed before the command begins. Where
// paths lie within each other, the more specific one counts, and Masked before the others.
type Command struct {
	Argv []string // [0] is looked up in the PATH of Env, never in the working folder; with a slash it is a path from Dir
	Dir  string   // the working folder, within Read or Write
	Env  []string // the whole environment, as name=value

	Read  []string // files and folders it may read and execute, beside the programs of the system
	Write []string // files and folders it may change as well
	// Masked can neither be read nor made, also while they do not exist and also within Write.
	// Of a path of which folders are missing, the first missing one cannot be made. None of them
	// may be a link, where the command could write it. See docs/sandbox.md on tier B.
	Masked  []string
	Network bool // otherwise no protocol reaches anything, this machine included

	Stdin          io.Reader // nothing to read when nil
	Stdout, Stderr io.Writer // dropped when nil; never called at the same time. A writer that blocks holds up the command

	Wall time.Duration // 0: none
	Idle time.Duration // without a byte of output; 0: none
	// Limits of zero are defaults.
	Limits Limits
	// Min is the weakest tier that will do, B when empty.
	Min Tier
}

// Limits bound what a command uses up.
type Limits struct {
	Memory    int64         // bytes of the whole tree of processes; 2 GiB
	Processes int           // at a time; 256, and four times as many threads
	OpenFiles int           // of each process; 1024
	FileSize  int64         // bytes of a file it writes; 1 GiB
	CPU       time.Duration // of each process, in whole seconds; 1 h
}

// Why a command was ended by its keeper, for [Result.KilledBy].
const (
	KilledByIdle      = "idle_timeout"
	KilledByWall      = "timeout"
	KilledByCancel    = "cancelled"
	KilledByMemory    = "memory"
	KilledByProcesses = "processes"
)

// Result is how a command that was started ended. No process of it is left.
type Result struct {
	Exit     int    // -1 when a signal ended it
	Signal   string // such as SIGKILL; "" when it exited
	KilledBy string // "" when it ended by itself
	Tier     Tier   // that held it
	Wall     time.Duration
	CPU      time.Duration
	MaxRSS   int64 // bytes: of the whole tree, what it shares counted for each process, where that was seen; else of its largest process
}

// Run starts a command, and returns once no process of its tree is left, what it left in the
// background included. When ctx or a clock ends it, it is asked to end (SIGTERM), and is gone two
// seconds later at most.
//
// An error means that nothing was started: [*TierError], or [*StartError] with what failed.
func (s *Sandbox) Run(ctx context.Context, c Command) (Result, error) {
	c, err := c.validated()
	if err != nil {
		return Result{}, err
	}

	tier, reasons := s.Tier(ctx)
	if err := ctx.Err(); err != nil {
		return Result{}, &StartError{Argv0: c.Argv[0], Tier: tier, Err: context.Cause(ctx)}
	}

	off := s.options.Off != ""
	if !off && (tier == TierD || !tier.AtLeast(c.Min)) {
		return Result{}, &TierError{Have: tier, Need: c.Min, Reasons: reasons}
	}

	return s.host.run(ctx, tier, c)
}

// TierError says that this machine cannot confine a command as strongly as it must be.
type TierError struct {
	Have, Need Tier
	Reasons    []string // as of [Sandbox.Tier]
}

func (e *TierError) Error() string {
	return fmt.Sprintf("the confinement of this machine is tier %s, and tier %s is needed, so nothing was started: %s",
		e.Have, e.Need, strings.Join(e.Reasons, "; "))
}

// StartError says that a command could not be started. It wraps [os/exec.ErrNotFound] where there
// is no such program, and [io/fs.ErrPermission] where it may not be executed.
type StartError struct {
	Argv0 string
	Tier  Tier
	Err   error
}

func (e *StartError) Error() string {
	return fmt.Sprintf("%s could not be started: %v", e.Argv0, e.Err)
}

func (e *StartError) Unwrap() error { return e.Err }
