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

// Tier is the strength of the confinement of commands.
type Tier string

// Tiers, strongest first.
const (
	TierNamespaces Tier = "A" // Linux: bubblewrap, Landlock, seccomp
	TierLandlock   Tier = "B" // Linux: Landlock, seccomp; macOS: Seatbelt
	TierLimits     Tier = "C" // Windows: restricted token, job object; the network is not confined
	TierNone       Tier = "D" // no confinement
)

// AtLeast reports whether t confines at least as strongly as min. It returns false if either is not
// a tier.
func (t Tier) AtLeast(min Tier) bool {
	return t.Valid() && min.Valid() && t <= min
}

// Valid reports whether t is one of the four tiers.
func (t Tier) Valid() bool {
	return t == TierNamespaces || t == TierLandlock || t == TierLimits || t == TierNone
}

// Options configure a Sandbox.
type Options struct {
	// OffReason is the owner's reason for `sandbox: off`. If it is set, every command runs on tier
	// D as a plain process, and only its timeouts are enforced.
	OffReason string
	// Scratch is the folder for temporary files of running commands, where files of a killed
	// process can be found. "" means the system's folder for temporary files.
	Scratch string
	// MaxTier is the strongest tier to use, for tests and benchmarks. Empty means A.
	MaxTier Tier
}

// Sandbox starts confined commands. It is safe for concurrent use.
type Sandbox struct {
	options Options
	host    *host // platform-specific part

	mu      sync.Mutex
	probed  bool
	tier    Tier
	reasons []string
}

// New returns a Sandbox. It does not probe the machine: the first command or [Sandbox.Tier] does.
func New(o Options) (*Sandbox, error) {
	if o.MaxTier == "" {
		o.MaxTier = TierNamespaces
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

// MkdirTemp creates a folder in a scratch folder, and creates the scratch folder if it is missing.
// If scratch is "", it uses the system's folder for temporary files. The caller must remove the
// folder. The returned path has no links, because commands get it by name and only that path exists
// in their view.
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

// Close releases the resources of the Sandbox. No command may be running.
func (s *Sandbox) Close() error { return s.host.close() }

// Off reports whether the owner has switched the confinement off.
func (s *Sandbox) Off() bool { return s.options.OffReason != "" }

// Tier returns the strongest tier of this machine, and the reasons why it is not stronger. Each
// reason is one line and includes the remedy. The first call makes trial starts and stores the
// result. Programs installed later are found after a restart of the daemon.
//
// With Options.OffReason the tier is D, and the only line is the owner's reason. If programs may
// not be started in ctx and the tier is not known yet, Tier returns "".
func (s *Sandbox) Tier(ctx context.Context) (Tier, []string) {
	if s.options.OffReason != "" {
		return TierNone, []string{"it is off: " + s.options.OffReason}
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
	// A cancelled trial does not describe the machine. The next caller probes again.
	if ctx.Err() != nil {
		return TierNone, []string{"the check was interrupted: " + context.Cause(ctx).Error()}
	}
	// The same applies if this process lacked resources, which may be available later.
	if s.host.short {
		return tier, reasons
	}

	s.probed, s.tier, s.reasons = true, tier, reasons
	return tier, reasons
}

// Command is a program to run, with its access to files and the network.
//
// Paths are absolute. Links in Read, Write and Dir are resolved before the command starts. For
// nested paths the most specific one applies, and Masked takes precedence.
type Command struct {
	// Argv holds the program and its arguments. The program is looked up in the PATH of Env, never
	// in the working folder. A program with a slash is a path relative to Dir.
	Argv []string
	// Self starts this binary instead of Argv[0], and lets the command read it. On Linux it starts
	// the file from which this process was started, even if another file has its name now.
	Self bool
	Dir  string   // working folder, within Read or Write
	Env  []string // complete environment, as name=value

	Read  []string // files and folders that it may read and execute, in addition to the system's programs
	Write []string // files and folders that it may also change
	// ReadOnly are paths within Write that can be read, but not changed, moved or removed. They
	// must exist. Neither the path nor a folder on the way to it may be a link.
	ReadOnly []string
	// Masked are paths that cannot be read or created, even if they do not exist, and even within
	// Write. If folders on the way are missing, the first missing folder cannot be created. Below a
	// writable folder, none of the folders may be a link. For tier B see docs/guides/sandbox.md.
	Masked []string
	// Replaced maps files to other files. The command sees the content of the other file, which it
	// cannot change. The files must be readable and not writable. On a tier without mounts they are
	// masked.
	Replaced map[string]string
	// Boundary holds the folders in which other users can create names. A link below them that
	// leads to Dir, Read or Write is rejected.
	Boundary nofollow.UntrustedDirs

	// Temp is a folder for this command only. On tier A the command sees it as /tmp and /dev/shm.
	// On other tiers the caller must pass its path to the command and add it to Write. If Temp is
	// "", the command gets a temporary folder, on tier A in memory, which is removed afterwards.
	Temp string

	Network bool // if false, the command cannot reach any address, not even this machine

	Stdin io.Reader // empty if nil
	// Stdout and Stderr receive the output. It is discarded if they are nil. They are never called
	// concurrently. A writer that blocks stalls the command.
	Stdout, Stderr io.Writer

	Wall time.Duration // 0 means no timeout
	Idle time.Duration // maximum time without output; 0 means no timeout
	// Limits are the resource limits. Zero values have defaults.
	Limits Limits
	// MinTier is the weakest accepted tier. Empty means B. Tier D is accepted only if the
	// sandbox is off.
	MinTier Tier
}

// Limits are the resource limits of a command.
type Limits struct {
	Memory    int64         // bytes of the whole process tree; default 2 GiB
	Processes int           // concurrent processes, and four times as many threads; default 256
	OpenFiles int           // per process; default 1024
	FileSize  int64         // bytes of a written file; default 1 GiB
	CPU       time.Duration // per process, in whole seconds; default 1 h
}

// Reasons why a command was ended, for [Result.KilledBy].
const (
	KilledByIdle      = "idle_timeout"
	KilledByWall      = "timeout"
	KilledByCancel    = "cancelled"
	KilledByMemory    = "memory"
	KilledByProcesses = "processes"
)

// Result describes the end of a command. All of its processes have ended.
type Result struct {
	Exit     int    // -1 if it was ended by a signal
	Signal   string // for example SIGKILL; "" if it exited
	KilledBy string // "" if it ended by itself
	Tier     Tier   // tier that confined it
	Wall     time.Duration
	CPU      time.Duration
	// MaxRSS is the peak memory in bytes. It is that of the whole tree if it was measured, and
	// otherwise of the largest process. For the tree, shared memory counts once per process.
	MaxRSS int64
}

// Run starts a command. It returns when all processes of its tree have ended, including background
// processes. If ctx or a timeout ends the command, it gets SIGTERM first, and is killed within two
// seconds.
//
// If the command was not started, Run returns a [*TierError], or a [*StartError] with the cause.
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

	// With sandbox: off the owner has accepted tier D for all commands.
	if !s.Off() && (tier == TierNone || !tier.AtLeast(c.MinTier)) {
		return Result{}, &TierError{Have: tier, Need: c.MinTier, Reasons: reasons}
	}

	return s.host.run(ctx, tier, c)
}

// TierError means that this machine cannot confine a command as strongly as the command requires.
type TierError struct {
	Have, Need Tier
	Reasons    []string // from [Sandbox.Tier]
}

func (e *TierError) Error() string {
	return fmt.Sprintf("the confinement of this machine is tier %s, and tier %s is needed, so nothing was started: %s",
		e.Have, e.Need, strings.Join(e.Reasons, "; "))
}

// StartError means that a command could not be started. It wraps [os/exec.ErrNotFound] if the
// program does not exist, and [io/fs.ErrPermission] if it is not executable.
type StartError struct {
	Argv0 string
	Tier  Tier
	Err   error
}

func (e *StartError) Error() string {
	return fmt.Sprintf("%s could not be started: %v", e.Argv0, e.Err)
}

func (e *StartError) Unwrap() error { return e.Err }
