package agent

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"

	"rouse/agent/runlog"
	"rouse/agent/sandbox"
	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/internal/ledger"
)

// programHosts start the programs of all runs, with one sandbox for each reason not to confine.
type programHosts struct {
	lanes *shell.Limiter
	gates *shell.Limiter // a condition is checked in time, however busy the lanes are
	// executors limits nothing: a program may work for an hour, and must not block the lanes.
	executors *shell.Limiter
	scratch   string
	readable  func(name string, content []byte) (kind, text string) // for approvals, see shell.Launcher

	mu        sync.Mutex
	sandboxes map[string]*sandbox.Sandbox // by the reason that is given for none, "" for confined
}

func newPrograms(scratch string) (*programHosts, error) {
	n := max(2, runtime.NumCPU())
	lanes, err := shell.NewLimiter(n)
	if err != nil {
		return nil, err
	}
	gates, err := shell.NewLimiter(n)
	if err != nil {
		return nil, err
	}

	executors, err := shell.NewLimiter(math.MaxInt32)
	if err != nil {
		return nil, err
	}

	return &programHosts{lanes: lanes, gates: gates, executors: executors, scratch: scratch, sandboxes: map[string]*sandbox.Sandbox{}}, nil
}

// sandboxFor is the sandbox for agents whose owner gives a reason not to confine them, "" for all others.
func (p *programHosts) sandboxFor(unconfined string) (*sandbox.Sandbox, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if b, ok := p.sandboxes[unconfined]; ok {
		return b, nil
	}

	// A failure is not kept: the next run tries again.
	b, err := sandbox.New(sandbox.Options{OffReason: unconfined, Scratch: p.scratch})
	if err == nil {
		p.sandboxes[unconfined] = b
	}
	return b, err
}

func (p *programHosts) host(t *attempt, roots *tool.Roots) (*shell.Launcher, error) {
	box, err := p.sandboxFor(t.Agent.Unconfined)
	if err != nil {
		return nil, err
	}
	h := &shell.Launcher{Sandbox: box, Limiter: p.lanes, Roots: roots, MinTier: sandbox.Tier(t.MinTier()), Scratch: p.scratch, Writable: t.Plan.WritableFolders, Readable: p.readable}
	if t.Clone != nil {
		h.Checkout, h.Mirror = t.Clone.Dir, t.Clone.Mirror
	}
	return h, nil
}

// recoverCommands cleans up after the commands of a process that died. It retries at the next
// start.
func (r *Runner) recoverCommands(ctx context.Context) error {
	if r.programs.scratch == "" {
		return nil
	}

	found, err := shell.Recover(ctx, r.programs.scratch)
	if err != nil {
		r.log.Error("what a command left when its process died cannot be cleaned up; do not use git in its folders before that is done", "err", err)
	}

	err = r.recordDisarmed(ctx, ledger.Run{}, found.Disarmed)
	for _, k := range found.Kept {
		err = errors.Join(err, r.recordKept(ctx, ledger.Run{}, &k))
	}
	return err
}

// recordEnded records what a program outside of a call left or got disarmed.
func (r *Runner) recordEnded(ctx context.Context, run ledger.Run, ended shell.Ended) error {
	ctx = context.WithoutCancel(ctx)
	return errors.Join(ended.Unkept, r.recordDisarmed(ctx, run, ended.Disarmed), r.recordKept(ctx, run, ended.Kept))
}

// recordKept records what a command outside of a call left in its temporary places, if anything.
func (r *Runner) recordKept(ctx context.Context, run ledger.Run, k *shell.Kept) error {
	if k == nil {
		return nil
	}

	r.log.Warn("a command left files in temporary places and may have moved them there; they are kept", "folder", k.Folder, "files", k.Files, "job", run.Job, "run", run.ID)
	return runlog.AppendEvent(ctx, r.ledger, run, "files.kept", k)
}

// recordDisarmed puts on record what was disarmed outside of a call, whose answer would say it.
func (r *Runner) recordDisarmed(ctx context.Context, run ledger.Run, disarmed []shell.Disarmed) error {
	var all error
	for _, d := range disarmed {
		r.log.Warn("a command made a git repository; it was taken out of use by renaming, because git would run what its configuration says", "path", d.Path, "undo", d.Undo(), "job", run.Job, "run", run.ID)
		all = errors.Join(all, runlog.AppendEvent(ctx, r.ledger, run, "git.disarmed", d))
	}
	return all
}
