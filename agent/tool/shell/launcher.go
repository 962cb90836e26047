package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"rouse/agent/sandbox"
	"rouse/agent/tool"
	"rouse/internal/fspath"
	"rouse/internal/nofollow"
	"rouse/internal/text"
)

// Launcher runs the commands of one run, each confined to the roots of that run.
type Launcher struct {
	Sandbox *sandbox.Sandbox
	Limiter *Limiter
	Roots   *tool.Roots
	MinTier sandbox.Tier // the weakest tier that is accepted; "" is the default of the sandbox
	// Scratch is the folder for temporary files, so that those of a process that died can be found
	// (see Recover); "" is the system's.
	Scratch string
	// Writable are the folders in which any agent, or a stranger, can write between an approval and
	// the call.
	Writable nofollow.Boundary
	// Checkout is the private clone of the run (see agent/checkout), in which git and its hooks are
	// the agent's: what a command makes there is not disarmed. The host never runs git there.
	// Optional.
	Checkout string
	// Mirror is the repository whose objects the clone borrows: commands can read it. Optional.
	Mirror string
	// Readable returns the type of a binary file and its text, or "". Optional.
	Readable func(name string, content []byte) (kind, text string)
	// Starting is called before a program starts that no call of the run asked for. Its error keeps
	// the program from starting. It is nil for calls, which the authorizer has decided on.
	Starting func(context.Context, Start) error
}

// Start is a program that is about to start, and what it is given.
type Start struct {
	Argv        []string
	Read, Write []string // its folders and files, links resolved
	Network     bool
	Tier        sandbox.Tier
}

func (h *Launcher) check() error {
	if h == nil || h.Sandbox == nil || h.Limiter == nil || h.Roots == nil {
		return errors.New("shell: a sandbox, a limiter and roots are needed")
	}
	return nil
}

// Tier is how strongly commands are confined here.
func (h *Launcher) Tier(ctx context.Context) sandbox.Tier {
	tier, _ := h.Sandbox.Tier(ctx)
	return tier
}

// Program is what a command starts.
type Program struct {
	Argv  []string
	Env   []string // in addition to what every command is given, or in its place
	Read  []string // absolute paths in addition to the roots of the run
	Write []string
	// ReadOnly makes all roots of the run read-only: the command can change nothing but Write.
	ReadOnly       bool
	Network        bool
	Memory         int64         // bytes of all its processes; 0: the sandbox's default
	Idle, Wall     time.Duration // 0: none
	Stdin          io.Reader     // nil: nothing to read
	Stdout, Stderr *Output
}

// Ended describes how a command has ended, and what was done about its files.
type Ended struct {
	sandbox.Result
	Disarmed     []Disarmed // repositories that it made (see gitGuard)
	Kept         *Kept      // files in its temporary places that it may have moved there, or nil
	Unkept       error      // why these could not be kept, and where they lie
	discarded    []leftover // what else it left there
	repositories []string   // of the owner, in the folders that it could write
}

// Run runs a command to its end. An error means that it did not start, or that its files could not
// be checked; StartFailure makes an answer of it.
func (h *Launcher) Run(ctx context.Context, p Program) (Ended, error) {
	release, err := h.Limiter.acquire(ctx)
	if err != nil {
		return Ended{}, &sandbox.StartError{Argv0: p.Argv[0], Err: err}
	}
	defer release()

	own, places, err := h.makePlaces("command", homeFolder, tempFolder)
	if err != nil {
		return Ended{}, err
	}
	home, temp := places[0], places[1]
	var ended Ended
	defer func() {
		if ended.Unkept == nil {
			_ = os.RemoveAll(own) // what is left of it is removed at the next start
		}
	}()

	read, write := h.Roots.ProgramPaths(p.Argv)
	if h.Mirror != "" {
		read = append(read, h.Mirror)
	}
	if p.ReadOnly {
		read, write = append(read, write...), nil
	}

	c := sandbox.Command{
		Argv: p.Argv, Dir: h.Roots.Workdir(), Env: withEnv(environment(home, temp), p.Env),
		Read: append(read, p.Read...), Write: append(append(write, p.Write...), home, temp), Temp: temp, Masked: h.Roots.ProgramMasks(),
		Boundary: h.Roots.Boundary(), Network: p.Network, Stdin: p.Stdin, Stdout: p.Stdout, Stderr: p.Stderr, Idle: p.Idle, Wall: p.Wall, MinTier: h.MinTier,
		Limits: sandbox.Limits{Memory: p.Memory},
	}

	if err := h.hide(&c, p.Read, p.Write); err != nil {
		return Ended{}, &sandbox.StartError{Argv0: p.Argv[0], Err: err}
	}
	if h.Starting != nil {
		given := Start{p.Argv, c.Read, append(write, p.Write...), p.Network, h.Tier(ctx)}
		if err := h.Starting(ctx, given); err != nil {
			return Ended{}, &sandbox.StartError{Argv0: p.Argv[0], Err: err}
		}
	}

	if p.ReadOnly {
		res, err := runWithFloodGuard(ctx, h.Sandbox, c, p.Stdout, p.Stderr)
		return Ended{Result: res}, err
	}

	ended, err = h.runGuarded(ctx, c, p, own)
	return ended, err
}

// makePlaces makes the folder of a command and places in it. Beside them lies the note for Recover,
// which the command cannot reach.
func (h *Launcher) makePlaces(what string, names ...string) (own string, places []string, err error) {
	own, err = h.MkdirTemp(what)
	for _, name := range names {
		places = append(places, filepath.Join(own, name))
		if err == nil {
			err = os.Mkdir(filepath.Join(own, name), 0o700)
		}
	}
	if err != nil {
		return "", nil, fmt.Errorf("a command needs a temporary folder: %w", err)
	}
	return own, places, nil
}

// hide masks the home of rouse in the folders that a program is given beside the roots of its run.
func (h *Launcher) hide(c *sandbox.Command, read, write []string) error {
	hidden, err := h.Roots.HiddenIn(read, write, h.Scratch)
	c.Masked = append(c.Masked, hidden...)
	return err
}

// withEnv adds settings to an environment. A program that finds a name twice could take either.
func withEnv(env, more []string) []string {
	for _, setting := range more {
		name, _, _ := strings.Cut(setting, "=")
		env = append(slices.DeleteFunc(env, func(one string) bool { return strings.HasPrefix(one, name+"=") }), setting)
	}
	return env
}

// runGuarded runs a command that may write where its owner may use git. own is its folder.
func (h *Launcher) runGuarded(ctx context.Context, c sandbox.Command, p Program, own string) (Ended, error) {
	// By the clock of the file system, which lags behind the other one.
	made, err := os.Stat(own)
	if err != nil {
		return Ended{}, err
	}

	guard, err := newGitGuard(c.Boundary, slices.DeleteFunc(slices.Clone(c.Write), func(path string) bool {
		return fspath.Within(path, own) || h.Checkout != "" && fspath.Within(path, h.Checkout)
	}))
	if err != nil {
		return Ended{}, &sandbox.StartError{Argv0: p.Argv[0], Err: err}
	}
	defer guard.close()

	mounted := slices.Concat(c.Read, c.Write, c.Masked)
	if err := guard.note(own, mounted); err != nil {
		return Ended{}, &sandbox.StartError{Argv0: p.Argv[0], Err: err}
	}

	if err := guard.protect(&c, own, h.Tier(ctx)); err != nil {
		return Ended{}, &sandbox.StartError{Argv0: p.Argv[0], Err: err}
	}
	res, err := runWithFloodGuard(ctx, h.Sandbox, c, p.Stdout, p.Stderr)
	if err != nil {
		return Ended{}, err
	}

	// Also if the run was cancelled: its owner may look into the folder next. Kept files may be a
	// repository.
	ended := Ended{Result: res, repositories: slices.Sorted(maps.Keys(guard.owners))}
	ended.Kept, ended.discarded, ended.Unkept = temporaries{own, made.ModTime().UnixNano(), guard, h.Roots, mounted}.settle(context.WithoutCancel(ctx))
	ended.Disarmed, err = guard.disarm()
	return ended, err
}

// KilledByOutput is the KilledBy of a program that wrote without end.
const KilledByOutput = "output"

// runWithFloodGuard also ends a program that floods its outputs.
func runWithFloodGuard(ctx context.Context, box *sandbox.Sandbox, c sandbox.Command, outputs ...*Output) (sandbox.Result, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	var flooded atomic.Bool
	for _, o := range outputs {
		if o != nil {
			o.onFlood = func() {
				flooded.Store(true)
				stop()
			}
		}
	}

	res, err := box.Run(ctx, c)
	// For the sandbox a flood is a cancellation.
	if err == nil && res.KilledBy == sandbox.KilledByCancel && flooded.Load() {
		res.KilledBy = KilledByOutput
	}

	return res, err
}

// StartFailure returns the answer to a call whose command did not start; an error means that the
// host is broken. An undo knows by its kind, or because the call is cancelled, that the command did
// nothing.
func StartFailure(ctx context.Context, err error) (tool.Envelope, error) {
	var weak *sandbox.TierError
	var start *sandbox.StartError
	switch {
	case err == nil:
		return tool.Envelope{}, nil
	case errors.As(err, &weak):
		return tool.Failure(tool.KindRejected, "%s", weak.Error()), nil
	// The run was cancelled while the command waited for its turn: not the host's fault.
	case ctx.Err() != nil:
		return tool.Cancelled(ctx), nil //nolint:nilerr // the answer says it
	case errors.As(err, &start) && errors.Is(err, exec.ErrNotFound):
		return noProgram(start.Argv0), nil
	case errors.As(err, &start):
		return tool.Failure(tool.KindUnavailable, "%s", text.Visible(start.Error())), nil
	}

	return tool.Envelope{}, err
}

func noProgram(name string) tool.Envelope {
	// It does not say whether the file exists: a command could then be asked for any file of the host.
	if strings.ContainsAny(name, `/\`) {
		return tool.Failure(tool.KindNotFound, "there is no program %s that the commands of this agent can read; it must be there, and lie in the agent's workdir, in a folder of the system, or under its grants: read", text.Visible(name))
	}
	if found := Elsewhere(name); found != "" {
		return tool.Failure(tool.KindNotFound, "the program %s is at %s, but commands are only looked for in %s; write its full path, also in the grant of the agent: argv: [%[2]s, ...]",
			text.Visible(name), text.Visible(found), searchPath())
	}
	return tool.Failure(tool.KindNotFound, "there is no program %s among those of the system (%s); install it there, or name its path", text.Visible(name), searchPath())
}

// cannotStart refuses a command that would not start here, whoever approves it.
func (h *Launcher) cannotStart(l commandLine, tier sandbox.Tier) error {
	switch _, err := script(l.script); {
	// The authorizer reports any other tier that is too weak.
	case tier == sandbox.TierD && h.MinTier == sandbox.TierD && !h.Sandbox.Off():
		return tool.Refuse(tool.KindRejected, "commands cannot be confined here (tier D), and are started so only where their owner says sandbox: off, with a reason; rouse doctor says what to install")
	case l.argv == nil && err != nil:
		return tool.Refuse(tool.KindUnavailable, "%s", err.Error())
	case l.argv != nil && !strings.ContainsAny(l.argv[0], `/\`) && !hasProgram(l.argv[0]):
		return &tool.Refusal{Envelope: noProgram(l.argv[0])}
	}
	return nil
}

// IsSystemProgram reports whether every command can read a program, since it is the system's.
func IsSystemProgram(path string) bool { return sandbox.IsSystem(path) }

// SearchPath is the PATH that every command is given.
func SearchPath() string { return searchPath() }

// Limiter limits the number of commands that run at once; others wait in order (OSL-20).
type Limiter struct{ running chan struct{} }

// NewLimiter allows n commands at once.
func NewLimiter(n int) (*Limiter, error) {
	if n < 1 {
		return nil, fmt.Errorf("shell: the limit of commands at once is %d; it must be at least 1", n)
	}
	return &Limiter{make(chan struct{}, n)}, nil
}

// acquire waits for a free place. It returns the cause of ctx if ctx ends first.
func (l *Limiter) acquire(ctx context.Context) (release func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case l.running <- struct{}{}:
		return func() { <-l.running }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// userFolders lists the usual folders of a user's programs, relative to the home or absolute.
var userFolders = []string{
	".local/bin", "bin", "go/bin", ".cargo/bin", ".bun/bin", ".deno/bin", ".npm-global/bin", ".volta/bin", ".nvm/versions/node/*/bin", ".nix-profile/bin",
	"/home/linuxbrew/.linuxbrew/bin", "/opt/homebrew/bin", "/usr/local/go/bin", "/snap/bin",
}

// Elsewhere looks for a program in the PATH of this process and the usual folders of its user, or
// returns "".
func Elsewhere(name string) string {
	if name == "" || strings.ContainsAny(name, `/\`) {
		return ""
	}
	if found, err := exec.LookPath(name); err == nil && filepath.IsAbs(found) {
		return found
	}

	home, err := os.UserHomeDir()
	for _, folder := range userFolders {
		if !filepath.IsAbs(folder) {
			if err != nil {
				continue
			}
			folder = filepath.Join(home, folder)
		}
		all, _ := filepath.Glob(folder) // the pattern is valid
		for _, one := range all {
			if found, err := exec.LookPath(filepath.Join(one, name)); err == nil {
				return found
			}
		}
	}
	return ""
}
