package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"rouse/internal/noexec"
	"rouse/internal/nofollow"
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

// AtLeast reports whether t confines at least as strongly as min. It is false when either is not a tier.
func (t Tier) AtLeast(min Tier) bool {
	return t.Valid() && min.Valid() && t <= min
}

// Valid reports whether t is one of the four.
func (t Tier) Valid() bool {
	return t == TierA || t == TierB || t == TierC || t == TierD
}

// Options configure a Sandbox.
type Options struct {
	// Off is the owner's reason for `sandbox: off`. When it is set, every command runs on tier D:
	// a plain process of which only the clocks are enforced.
	OffReason string
	// Scratch is the folder for what is needed while a command runs, so that what a killed process left can be
	// found; "" is the system's for temporary files.
	Scratch string
	// Most is the strongest tier to use, A when empty: for tests and benchmarks.
	MaxTier Tier
}

// Sandbox starts confined commands. It is safe for concurrent use.
type Sandbox struct {
	options Options
	host    *host // what this operating system offers

	mu      sync.Mutex
	probed  bool
	tier    Tier
	reasons []string
}

// New probes nothing yet: the first command, or [Sandbox.Tier], does.
func New(o Options) (*Sandbox, error) {
	if o.MaxTier == "" {
		o.MaxTier = TierA
	}
	if !o.MaxTier.Valid() {
		return nil, fmt.Errorf("sandbox: there is no tier %q; tiers are A, B, C and D", o.MaxTier)
	}
	if o.OffReason != "" && strings.TrimSpace(o.OffReason) == "" {
		return nil, errors.New("sandbox: it can be off for a reason only, and the one given is blank")
	}

	h, err := newHost(o.Scratch)
	if err != nil {
		return nil, err
	}

	return &Sandbox{options: o, host: h}, nil
}

// MkdirTemp makes a folder in a scratch folder, which is made too if it is missing; "" is the system's for
// temporary files. The caller removes it. Its path has no links: what is started is told it by name, and in
// its view only that path exists.
func MkdirTemp(scratch, what string) (string, error) {
	if scratch != "" {
		if err := os.MkdirAll(scratch, 0o700); err != nil {
			return "", err
		}
	}

	dir, err := os.MkdirTemp(scratch, "rouse-"+what+"-")
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// Close releases what the Sandbox holds. No command may be running.
func (s *Sandbox) Close() error { return s.host.close() }

// Off reports whether its owner has switched the confinement off, with a reason.
func (s *Sandbox) Off() bool { return s.options.OffReason != "" }

// Tier is the strongest tier of this machine, with the reasons why it is not a stronger one: a line
// for each thing that is missing, and what to do about it. The first call finds out by trial starts
// and remembers the answer: what is installed later counts from the next start of the daemon.
//
// With [Options.Off] the tier is D, and the one line is the owner's reason. In a context in which no program may be
// started it is "" until it is known.
func (s *Sandbox) Tier(ctx context.Context) (Tier, []string) {
	if s.options.OffReason != "" {
		return TierD, []string{"it is off: " + s.options.OffReason}
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.probed {
		return s.tier, s.reasons
	}
	if noexec.Is(ctx) {
		return "", nil
	}

	tier, reasons := s.host.probe(ctx, s.options.MaxTier)
	// A trial that was cancelled says nothing about the machine: the next caller probes again.
	if ctx.Err() != nil {
		return TierD, []string{"the check was interrupted: " + context.Cause(ctx).Error()}
	}
	// Nor does one for which this process was short of something: the next caller may have it.
	if s.host.short {
		return tier, reasons
	}

	s.probed, s.tier, s.reasons = true, tier, reasons
	return tier, reasons
}

// Command is a program to run, and everything that it is given.
//
// Paths are absolute; links in Read, Write and Dir are resolved before the command starts. Where
// paths are nested, the most specific one counts, and Masked before the others.
type Command struct {
	Argv []string // [0] is looked up in the PATH of Env, never in the working folder; with a slash it is a path from Dir
	// Self starts this very binary, whatever Argv[0] says, and lets the command read it: on Linux the file that this
	// process was started from, even when another one has its name by now.
	Self bool
	Dir  string   // the working folder, within Read or Write
	Env  []string // the whole environment, as name=value

	Read  []string // files and folders it may read and execute, beside the programs of the system
	Write []string // files and folders it may change as well
	// ReadOnly exists within Write, and can be read there and not be changed, moved or removed. Neither
	// it nor a folder on the way to it may be a link.
	ReadOnly []string
	// Masked can neither be read nor created, even while they do not exist and even within Write.
	// Where folders on the way to a path are missing, the first missing one cannot be created. None
	// of them may be a link in a place that the command can write. See docs/guides/sandbox.md on tier B.
	Masked []string
	// Replaced has files that the command sees with the content of another file, which it cannot change. They lie where it
	// may read and not write. They are masked on a tier without mounts.
	Replaced map[string]string
	// Boundary holds the places in which others than the owner make names: a link below them that leads to
	// Dir, Read or Write is refused.
	Boundary nofollow.Boundary

	// Temp is a folder, for this command alone, that it sees as /tmp and /dev/shm where its view has mounts
	// (tier A); elsewhere it has to be told of it, and be given it in Write. Without one it has some of its
	// own, in memory on tier A, which are gone afterwards.
	Temp string

	Network bool // false: no protocol reaches anything, not even this machine

	Stdin          io.Reader // nothing to read when nil
	Stdout, Stderr io.Writer // discarded when nil; never called concurrently. A writer that blocks stalls the command

	Wall time.Duration // 0: none
	Idle time.Duration // without a byte of output; 0: none
	// Limits that are zero have defaults.
	Limits Limits
	// Min is the weakest tier that is accepted, B when empty.
	MinTier Tier
}

// Limits bound the resources of a command.
type Limits struct {
	Memory    int64         // bytes of the whole tree of processes; 2 GiB
	Processes int           // at a time; 256, and four times as many threads
	OpenFiles int           // of each process; 1024
	FileSize  int64         // bytes of a file it writes; 1 GiB
	CPU       time.Duration // of each process, in whole seconds; 1 h
}

// Why a command was ended before it ended by itself, for [Result.KilledBy].
const (
	KilledByIdle      = "idle_timeout"
	KilledByWall      = "timeout"
	KilledByCancel    = "cancelled"
	KilledByMemory    = "memory"
	KilledByProcesses = "processes"
)

// Result is how a command that was started has ended. None of its processes is left.
type Result struct {
	Exit     int    // -1 when a signal ended it
	Signal   string // such as SIGKILL; "" when it exited
	KilledBy string // "" when it ended by itself
	Tier     Tier   // that confined it
	Wall     time.Duration
	CPU      time.Duration
	MaxRSS   int64 // bytes: of the whole tree where that was measured (shared memory counted once for each process), else of its largest process
}

// Run starts a command, and returns once no process of its tree is left, background processes
// included. When ctx or a clock ends it, it gets SIGTERM first, and is gone two seconds later at
// most.
//
// An error means that nothing was started: [*TierError], or [*StartError] with what failed.
func (s *Sandbox) Run(ctx context.Context, c Command) (Result, error) {
	c, err := c.validated()
	if err != nil {
		return Result{}, err
	}
	if noexec.Is(ctx) {
		return Result{}, &StartError{Argv0: c.Argv[0], Err: noexec.Err}
	}

	tier, reasons := s.Tier(ctx)
	if err := ctx.Err(); err != nil {
		return Result{}, &StartError{Argv0: c.Argv[0], Tier: tier, Err: context.Cause(ctx)}
	}

	// With sandbox: off the owner has accepted tier D, whatever the command asks for.
	if !s.Off() && (tier == TierD || !tier.AtLeast(c.MinTier)) {
		return Result{}, &TierError{Have: tier, Need: c.MinTier, Reasons: reasons}
	}

	return s.host.run(ctx, tier, c)
}

// TierError says that this machine cannot confine a command as strongly as the command requires.
type TierError struct {
	Have, Need Tier
	Reasons    []string // from [Sandbox.Tier]
}

func (e *TierError) Error() string {
	return fmt.Sprintf("the confinement of this machine is tier %s, and tier %s is needed, so nothing was started: %s",
		e.Have, e.Need, strings.Join(e.Reasons, "; "))
}

// StartError says that a command could not be started. It wraps [os/exec.ErrNotFound] when there
// is no such program, and [io/fs.ErrPermission] when it is not executable.
type StartError struct {
	Argv0 string
	Tier  Tier
	Err   error
}

func (e *StartError) Error() string {
	return fmt.Sprintf("%s could not be started: %v", e.Argv0, e.Err)
}

func (e *StartError) Unwrap() error { return e.Err }
