// Package programs starts the programs of runs in a sandbox: commands, conditions, MCP servers and
// agent programs. It records the files that they leave behind.
package programs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"unicode/utf8"

	"rouse/agent/plan"
	"rouse/agent/preview"
	"rouse/agent/runlog"
	"rouse/agent/sandbox"
	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/agent/tool/web"
	"rouse/internal/ledger"
	"rouse/internal/text"
	"rouse/skills/module"
)

// Hosts starts the programs of all runs. It has one sandbox for confined programs, and one for each
// reason not to confine a program.
type Hosts struct {
	ledger *ledger.Ledger // nil if no record is kept
	log    *slog.Logger
	lanes  *shell.Limiter
	Gates  *shell.Limiter // separate from lanes, so that a condition is checked in time
	// Executors has no limit, because an agent program may work for an hour and must not block
	// lanes.
	Executors *shell.Limiter
	Scratch   string
	Viewer    *preview.Viewer // renders files in approval requests; optional

	machineMu sync.Mutex
	modules   *module.Machine // nil until a module starts; guarded by machineMu

	mu        sync.Mutex
	sandboxes map[string]*sandbox.Sandbox // by the reason for no confinement; "" for confined programs
}

// New returns Hosts. scratch is the folder for temporary files of programs, or "" for that of the
// system.
func New(l *ledger.Ledger, log *slog.Logger, scratch string) (*Hosts, error) {
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

	return &Hosts{ledger: l, log: log, lanes: lanes, Gates: gates, Executors: executors, Scratch: scratch, sandboxes: map[string]*sandbox.Sandbox{}}, nil
}

// Sandbox returns the sandbox for programs. unconfined is the owner's reason for not confining
// them, or "" if they are confined.
func (p *Hosts) Sandbox(unconfined string) (*sandbox.Sandbox, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if b, ok := p.sandboxes[unconfined]; ok {
		return b, nil
	}

	// An error is not cached, so that the next run tries again.
	b, err := sandbox.New(sandbox.Options{OffReason: unconfined, Scratch: p.Scratch})
	if err == nil {
		p.sandboxes[unconfined] = b
	}
	return b, err
}

// Launcher returns the launcher for the programs of an attempt.
func (p *Hosts) Launcher(t *plan.Attempt, roots *tool.Roots) (*shell.Launcher, error) {
	box, err := p.Sandbox(t.Agent.Unconfined)
	if err != nil {
		return nil, err
	}
	h := &shell.Launcher{Sandbox: box, Limiter: p.lanes, Roots: roots, MinTier: sandbox.Tier(t.MinTier()), Scratch: p.Scratch, Writable: t.Plan.WritableFolders}
	if p.Viewer != nil {
		h.Readable = p.readable
	}
	if t.Clone != nil {
		h.Checkout, h.Mirror = t.Clone.Dir, t.Clone.Mirror
	}
	return h, nil
}

// Recover cleans up after the commands of a process that died. If it fails, the next start tries
// again.
func (p *Hosts) Recover(ctx context.Context) error {
	if p.Scratch == "" {
		return nil
	}

	found, err := shell.Recover(ctx, p.Scratch)
	if err != nil {
		p.log.Error("what a command left when its process died cannot be cleaned up; do not use git in its folders before that is done", "err", err)
	}

	err = p.RecordDisarmed(ctx, ledger.Run{}, found.Disarmed)
	for _, k := range found.Kept {
		err = errors.Join(err, p.RecordKept(ctx, ledger.Run{}, &k))
	}
	return err
}

// RecordEnded records the files and repositories that a program left, if no call of the run started
// the program.
func (p *Hosts) RecordEnded(ctx context.Context, run ledger.Run, ended shell.Ended) error {
	ctx = context.WithoutCancel(ctx)
	return errors.Join(ended.Unkept, p.RecordDisarmed(ctx, run, ended.Disarmed), p.RecordKept(ctx, run, ended.Kept))
}

// RecordKept records the files that a command left in temporary places. k may be nil.
func (p *Hosts) RecordKept(ctx context.Context, run ledger.Run, k *shell.Kept) error {
	if k == nil {
		return nil
	}

	p.log.Warn("a command left files in temporary places and may have moved them there; they are kept", "folder", k.Folder, "files", k.Files, "job", run.Job, "run", run.ID)
	return runlog.AppendEvent(ctx, p.ledger, run, "files.kept", k)
}

// RecordDisarmed records the git repositories that were disarmed after a command outside of a call.
// For a command within a call, the result of the call reports them.
func (p *Hosts) RecordDisarmed(ctx context.Context, run ledger.Run, disarmed []shell.Disarmed) error {
	var all error
	for _, d := range disarmed {
		p.log.Warn("a command made a git repository; it was taken out of use by renaming, because git would run what its configuration says", "path", d.Path, "undo", d.Undo(), "job", run.Job, "run", run.ID)
		all = errors.Join(all, runlog.AppendEvent(ctx, p.ledger, run, "git.disarmed", d))
	}
	return all
}

// RecordStart records that a program starts without a call of a model.
func (p *Hosts) RecordStart(ctx context.Context, run ledger.Run, why string, s shell.Start) error {
	network := "none"
	if s.Network {
		network = "host"
	}
	return runlog.AppendEvent(ctx, p.ledger, run, "program.started",
		map[string]any{"why": why, "program": filepath.Base(s.Argv[0]), "read": s.Read, "write": s.Write, "network": network, "tier": s.Tier})
}

// readableChars is the maximum number of characters of a file in an approval request.
const readableChars = 8000

// readable returns the text of a PDF or an HTML page for an approval request, and the type of
// another binary file. kind is "" for a file that is shown unchanged.
func (p *Hosts) readable(name string, content []byte) (kind, words string) {
	switch ext := strings.ToLower(filepath.Ext(name)); {
	case bytes.HasPrefix(content, []byte("%PDF-")):
		pdf, err := p.Viewer.PDF(context.Background(), bytes.NewReader(content), 1, readableChars)
		if err != nil {
			return "a PDF document that cannot be read", ""
		}
		return "a PDF document of " + text.Plural(pdf.Pages, "page"), pdf.Text
	case (ext == ".html" || ext == ".htm") && utf8.Valid(content):
		return "an HTML page", web.Words(string(content))
	case !utf8.Valid(content) || bytes.IndexByte(content, 0) >= 0:
		return fmt.Sprintf("binary data of type %s", http.DetectContentType(content)), ""
	}
	return "", ""
}

// TempDir creates an empty folder for a program to work in.
func (p *Hosts) TempDir(name string) (string, error) { return sandbox.MkdirTemp(p.Scratch, name) }

// TierProblem returns the error of a sandbox that is too weak for a program, or nil if err has
// another cause.
func TierProblem(err error) error {
	if weak, ok := errors.AsType[*sandbox.TierError](err); ok {
		return weak
	}
	return nil
}

// RequireStrongest makes a launcher refuse programs if this machine does not have the strongest
// sandbox.
func RequireStrongest(l *shell.Launcher) { l.MinTier = sandbox.TierNamespaces }
