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
	MinTier sandbox.Tier // weakest accepted tier; empty means the sandbox's default
	// Scratch is the folder for temporary files. Recover needs it to find the files of a process
	// that died. Empty means the system's folder.
	Scratch string
	// Writable are the folders in which an agent or another program can write between an approval
	// and the call.
	Writable nofollow.UntrustedDirs
	// Checkout is the private clone of the run (see agent/checkout). The agent controls git and its
	// hooks there, so repositories that a command makes there are not disarmed. The host never runs
	// git there. Optional.
	Checkout string
	// Mirror is the repository that the clone borrows objects from. Commands can read it. Optional.
	Mirror string
	// Readable returns the type of a binary file and its text, or "". Optional.
	Readable func(name string, content []byte) (kind, text string)
	// Starting is called before a program starts that is not part of a call. If it returns an
	// error, the program does not start. It is nil for calls, which the authorizer has already
	// decided on.
	Starting func(context.Context, Start) error
}

// Start describes a program that is about to start, and its access.
type Start struct {
	Argv        []string
	Read, Write []string // folders and files, links resolved
	Network     bool
	Tier        sandbox.Tier
}

func (h *Launcher) check() error {
	if h == nil || h.Sandbox == nil || h.Limiter == nil || h.Roots == nil {
		return errors.New("shell: a sandbox, a limiter and roots are needed")
	}
	return nil
}

// Tier returns the confinement tier of commands.
func (h *Launcher) Tier(ctx context.Context) sandbox.Tier {
	tier, _ := h.Sandbox.Tier(ctx)
	return tier
}

// Program describes a program to run and its access.
type Program struct {
	Argv  []string
	Env   []string // added to the default environment; overrides it
	Read  []string // absolute paths in addition to the roots of the run
	Write []string
	// ReadOnly makes all roots of the run read-only. The program can only write to Write.
	ReadOnly       bool
	Network        bool
	Memory         int64         // in bytes, for all processes; zero means the sandbox's default
	Idle, Wall     time.Duration // zero means no limit
	Stdin          io.Reader     // nil means empty input
	Stdout, Stderr *Output
}

// Ended describes how a command ended and how its files were handled.
type Ended struct {
	sandbox.Result
	Disarmed     []Disarmed // repositories that it made (see gitGuard)
	Kept         *Kept      // files in its temporary places that it may have moved there; nil if there are none
	Unkept       error      // error of keeping these files, with their location
	discarded    []leftover // other files it left there
	repositories []string   // the owner's repositories in the folders it could write
}

// Run runs a command to its end. It returns an error if the command did not start or its files
// could not be checked. StartFailure converts the error to a result.
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
			_ = os.RemoveAll(own) // remaining files are removed at the next start
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

// makePlaces creates the folder of a command with places in it. The note for Recover lies next to
// the places, where the command cannot reach it.
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

// hide masks the home of rouse in the folders that a program gets in addition to the roots of its
// run.
func (h *Launcher) hide(c *sandbox.Command, read, write []string) error {
	hidden, err := h.Roots.HiddenIn(read, write, h.Scratch)
	c.Masked = append(c.Masked, hidden...)
	return err
}

// withEnv adds settings to an environment. It removes earlier settings of the same name, because
// programs differ in which of two they use.
func withEnv(env, more []string) []string {
	for _, setting := range more {
		name, _, _ := strings.Cut(setting, "=")
		env = append(slices.DeleteFunc(env, func(one string) bool { return strings.HasPrefix(one, name+"=") }), setting)
	}
	return env
}

// runGuarded runs a command that may write where its owner may use git. own is the command's
// folder.
func (h *Launcher) runGuarded(ctx context.Context, c sandbox.Command, p Program, own string) (Ended, error) {
	// Use the clock of the file system, which lags behind the system clock.
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

	// Settle even if the run was cancelled, because its owner may open the folder next. Settle
	// before disarming, because kept files may contain a repository.
	ended := Ended{Result: res, repositories: slices.Sorted(maps.Keys(guard.owners))}
	ended.Kept, ended.discarded, ended.Unkept = temporaries{own, made.ModTime().UnixNano(), guard, h.Roots, mounted}.settle(context.WithoutCancel(ctx))
	ended.Disarmed, err = guard.disarm()
	return ended, err
}

// KilledByOutput is the KilledBy of a program that wrote too much output.
const KilledByOutput = "output"

// runWithFloodGuard runs a command and stops it if it floods its outputs.
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
	// The sandbox reports a flood as a cancellation.
	if err == nil && res.KilledBy == sandbox.KilledByCancel && flooded.Load() {
		res.KilledBy = KilledByOutput
	}

	return res, err
}

// StartFailure returns the result of a call if its command did not start. It returns an error if
// the host is at fault. From the result's kind, or the cancellation, an undo can tell that the
// command changed nothing.
func StartFailure(ctx context.Context, err error) (tool.Envelope, error) {
	var weak *sandbox.TierError
	var start *sandbox.StartError
	switch {
	case err == nil:
		return tool.Envelope{}, nil
	case errors.As(err, &weak):
		return tool.Failure(tool.KindRejected, "%s", weak.Error()), nil
	// The run was cancelled while the command waited for the limiter.
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
	// Do not reveal whether the file exists, or a command could probe for any file of the host.
	if strings.ContainsAny(name, `/\`) {
		return tool.Failure(tool.KindNotFound, "there is no program %s that the commands of this agent can read; it must be there, and lie in the agent's workdir, in a folder of the system, or under its grants: read", text.Visible(name))
	}
	if found := Elsewhere(name); found != "" {
		return tool.Failure(tool.KindNotFound, "the program %s is at %s, but commands are only looked for in %s; write its full path, also in the grant of the agent: argv: [%[2]s, ...]",
			text.Visible(name), text.Visible(found), searchPath())
	}
	return tool.Failure(tool.KindNotFound, "there is no program %s among those of the system (%s); install it there, or name its path", text.Visible(name), searchPath())
}

// cannotStart returns an error if a command could not start here even with an approval.
func (h *Launcher) cannotStart(l commandLine, tier sandbox.Tier) error {
	switch _, err := script(l.script); {
	// The authorizer reports any other tier that is too weak.
	case tier == sandbox.TierNone && h.MinTier == sandbox.TierNone && !h.Sandbox.Off():
		return tool.Refuse(tool.KindRejected, "commands cannot be confined here (tier D), and are started so only where their owner says sandbox: off, with a reason; rouse doctor says what to install")
	case l.argv == nil && err != nil:
		return tool.Refuse(tool.KindUnavailable, "%s", err.Error())
	case l.argv != nil && !strings.ContainsAny(l.argv[0], `/\`) && !hasProgram(l.argv[0]):
		return &tool.Refusal{Envelope: noProgram(l.argv[0])}
	}
	return nil
}

// IsSystemProgram reports whether a program belongs to the system, so that every command can read
// it.
func IsSystemProgram(path string) bool { return sandbox.IsSystem(path) }

// SearchPath returns the PATH of every command.
func SearchPath() string { return searchPath() }

// Limiter limits the number of commands that run at the same time.
type Limiter struct{ running chan struct{} }

// NewLimiter returns a Limiter for n concurrent commands.
func NewLimiter(n int) (*Limiter, error) {
	if n < 1 {
		return nil, fmt.Errorf("shell: the limit of commands at once is %d; it must be at least 1", n)
	}
	return &Limiter{make(chan struct{}, n)}, nil
}

// acquire waits for a free slot. It returns the cause of ctx if ctx ends first.
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

// Elsewhere returns the path of a program in the PATH of this process or in the usual folders of
// its user. It returns "" if there is none.
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
