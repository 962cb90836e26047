package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"rouse/agent/sandbox"
	"rouse/agent/tool"
	"rouse/internal/text"
)

// Launcher runs the commands of one run, each confined to the roots of that run.
type Launcher struct {
	Sandbox *sandbox.Sandbox
	Limiter *Limiter
	Roots   *tool.Roots
	MinTier sandbox.Tier // the weakest tier that is accepted; "" is the default of the sandbox
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
	Env   []string // in addition to what every command is given
	Read  []string // absolute paths in addition to the roots of the run
	Write []string
	// ReadOnly makes all roots of the run read-only: the command can change nothing but Write.
	ReadOnly       bool
	Network        bool
	Idle, Wall     time.Duration // 0: none
	Stdin          io.Reader     // nil: nothing to read
	Stdout, Stderr *Output
}

// Run runs a command to its end. An error means that it did not start; StartFailure makes an answer of it.
func (h *Launcher) Run(ctx context.Context, p Program) (sandbox.Result, error) {
	release, err := h.Limiter.acquire(ctx)
	if err != nil {
		return sandbox.Result{}, &sandbox.StartError{Argv0: p.Argv[0], Err: err}
	}
	defer release()

	home, err := os.MkdirTemp("", "rouse-command-")
	if err != nil {
		return sandbox.Result{}, fmt.Errorf("a command needs a temporary folder: %w", err)
	}
	defer os.RemoveAll(home) //nolint:errcheck // of a folder for temporary files

	// The command is told HOME by name, and the sandbox resolves links: only the resolved path exists in there.
	if home, err = filepath.EvalSymlinks(home); err != nil {
		return sandbox.Result{}, fmt.Errorf("a command needs a temporary folder: %w", err)
	}

	temp := filepath.Join(home, "tmp")
	if err := os.Mkdir(temp, 0o700); err != nil {
		return sandbox.Result{}, fmt.Errorf("a command needs a temporary folder: %w", err)
	}

	read, write := h.Roots.ProgramPaths(p.Argv)
	if p.ReadOnly {
		read, write = append(read, write...), nil
	}

	c := sandbox.Command{
		Argv: p.Argv, Dir: h.Roots.Workdir(), Env: append(environment(home, temp), p.Env...),
		Read: append(read, p.Read...), Write: append(append(write, p.Write...), home), Masked: h.Roots.ProgramMasks(),
		Network: p.Network, Stdin: p.Stdin, Stdout: p.Stdout, Stderr: p.Stderr, Idle: p.Idle, Wall: p.Wall, MinTier: h.MinTier,
	}

	if !p.ReadOnly {
		h.maskGitFiles(&c, h.Tier(ctx))
	}

	return runWithFloodGuard(ctx, h.Sandbox, c, p.Stdout, p.Stderr)
}

// KilledByOutput says that a program was ended because it wrote without end, for the KilledBy of
// its result.
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
	// For the sandbox a flood is a cancellation; only here it is known which of the two it was.
	if err == nil && res.KilledBy == sandbox.KilledByCancel && flooded.Load() {
		res.KilledBy = KilledByOutput
	}

	return res, err
}

// StartFailure is the answer to a call whose command did not start; an error means that the host is broken.
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
		return tool.Failure(tool.KindExecutionError, "cancelled before it started: %v", context.Cause(ctx)), nil //nolint:nilerr // the answer says it
	case errors.Is(err, exec.ErrNotFound):
		return tool.Failure(tool.KindNotFound, "there is no program %s among those of the system (%s); install it there, or name its path", text.Visible(programOf(err)), searchPath()), nil
	case errors.As(err, &start):
		return tool.Failure(tool.KindExecutionError, "%s", text.Visible(start.Error())), nil
	}

	return tool.Envelope{}, err
}

func programOf(err error) string {
	var start *sandbox.StartError
	if errors.As(err, &start) {
		return start.Argv0
	}
	return ""
}
