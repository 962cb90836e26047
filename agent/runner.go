package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"rouse/agent/blocker"
	"rouse/agent/checkout"
	"rouse/agent/checkout/runclone"
	"rouse/agent/failover"
	"rouse/agent/notice"
	"rouse/agent/plan"
	"rouse/agent/preview"
	"rouse/agent/programs"
	"rouse/agent/record"
	"rouse/agent/servers"
	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/agent/trigger"
	"rouse/agentdb/pool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/nofollow"
	"rouse/internal/progress"
	"rouse/scheduler/schedule"
)

// Options configures a Runner. Ledger, Databases and Manifests are required.
type Options struct {
	Ledger    *ledger.Ledger
	Databases *pool.Pool
	Manifests string // folder for the file lists of batches
	// Recordings is the folder for recordings of models. Empty disables recording.
	Recordings string
	// Scratch is the folder for the temporary files of commands. New removes leftovers of a dead
	// process. Empty means the system's temporary folder.
	Scratch string
	// Storage is the folder for the storage files of modules, with a subfolder for each agent.
	// Empty disables storage.
	Storage string
	// Placement moves the databases and files of agents to this node. It is nil unless several
	// nodes share the ledger.
	Placement Placement
	// Before is the folder for copies of files that agent programs may change. Empty means a
	// temporary folder. Copies in a temporary folder are lost if the process dies.
	Before string
	// SignIns stores the sign-ins of modules. If nil, modules cannot sign in.
	SignIns *servers.SignInOptions
	// Checkouts is the folder for the private clones of runs. Empty disables clones.
	Checkouts string
	// Version is the version of this program, which is sent to MCP servers.
	Version string
	// Servers is the folder for approvals of MCP servers. If empty, no server is approved.
	Servers string
	// Locks is the folder for lock files, which serialize changes of a file by several processes.
	// Optional.
	Locks string
	// Tools are additional tools. They cannot require RequiresSkills, RequiresUnlisted or
	// RequiresPhases.
	Tools []tool.Tool
	// Live receives the progress of running attempts. If nil, progress is not reported.
	Live *progress.Tracker
	// Desktop reports whether there is a desktop session. Nil means that there is no session.
	Desktop func() bool
	// CanDeliver reports whether a channel can deliver now (yes, no, unknown), with a reason.
	// Optional.
	CanDeliver func(ctx context.Context, channel string) (can, why string)
	Logger     *slog.Logger
}

// Placement moves an agent's database and files to the node that runs the agent.
type Placement interface {
	// Acquire moves the agent's database and files to this node. It is called before an attempt
	// begins.
	Acquire(ctx context.Context, agent string) error
	// Pin notes that the agent may have files on this node. It is called before a call is recorded
	// that may create files.
	Pin(ctx context.Context, agent string) error
	record.Placement
}

// Runner executes runs.
type Runner struct {
	parts      Options
	ledger     *ledger.Ledger
	databases  *pool.Pool
	placement  Placement // nil unless several nodes share the ledger
	files      trigger.Files
	recordings *record.Store
	modules    *moduleRunner
	loop       *optionsBuilder
	specs      tool.Specs // specs of all tools that do not depend on the plan
	log        *slog.Logger
	programs   *programs.Hosts
	fileLocks  *tool.Locks
	Blockers   *blocker.Finder
	Plan       *plan.Current
	Models     *failover.Health // availability of models
	Notices    *notice.Writer
	SignIns    *servers.SignIns
	Servers    *servers.Catalog
	Undoing    *Undoing
	clones     *runclone.Clones
}

// New returns a runner without a plan. The caller must call Set before the runner can execute runs.
// If the ledger is writable, New also cleans up after a process that died. If that cleanup fails,
// New returns the runner and an error.
func New(o Options) (*Runner, error) {
	if o.Ledger == nil || o.Databases == nil || o.Manifests == "" {
		return nil, errors.New("agent: a ledger, the databases and a folder for manifests are needed")
	}

	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}

	o.Before = cmp.Or(o.Before, filepath.Join(os.TempDir(), "rouse-before-"+rand.Text()))
	r := &Runner{
		ledger: o.Ledger, Plan: plan.NewCurrent(o.Ledger), databases: o.Databases, placement: o.Placement, files: trigger.Files{Ledger: o.Ledger, Log: o.Logger, Folder: o.Manifests}, recordings: record.NewStore(o.Recordings, o.Ledger, o.Placement, o.Logger),
		fileLocks: tool.NewLocks(o.Locks), parts: o, log: o.Logger,
	}
	var err error
	if r.programs, err = programs.New(o.Ledger, o.Logger, o.Scratch); err != nil {
		return nil, err
	}
	box, err := r.programs.Sandbox("")
	if err != nil {
		return nil, err
	}
	r.programs.Viewer = preview.New(box)
	if o.Checkouts != "" {
		r.clones = runclone.New(&checkout.Store{Dir: o.Checkouts, Sandbox: box, Now: r.ledger.Now}, r.ledger, r.Plan.Redact, r.log)
	}

	r.specs = Specs(o.Tools...)
	if err := checkSpecs(r.specs); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}

	if r.Servers, r.SignIns, err = servers.New(servers.Options{Ledger: o.Ledger, Log: o.Logger, Plan: r.Plan, Programs: r.programs, Approved: o.Servers, Received: o.Manifests, Version: o.Version, SignIns: o.SignIns}); err != nil {
		return nil, err
	}

	r.modules = &moduleRunner{ledger: r.ledger, log: r.log, plan: r.Plan, programs: r.programs, signIns: r.SignIns.Book(), storage: o.Storage}

	pauses, err := r.ledger.Pauses.Models(context.Background())
	if err != nil {
		return nil, err
	}

	r.Undoing = &Undoing{ledger: r.ledger, plan: r.Plan, databases: r.databases, locks: r.fileLocks, clones: r.clones, placement: r.placement}
	r.Notices = notice.NewWriter(r.ledger, r.log, r.Plan)
	r.Models = failover.NewHealth(r.ledger, r.log, r.Plan, pauses)
	r.assemble()
	r.Blockers = blocker.New(blocker.Options{Ledger: r.ledger, Databases: r.databases, Plan: r.Plan, Programs: r.programs, Models: r.Models, Servers: r.Servers})
	if r.ledger.ReadOnly() == nil { // otherwise the next process that can write cleans up
		ctx := context.Background()
		if err := r.programs.Recover(ctx); err != nil {
			return r, err
		}
		r.clones.Recover(ctx)
		if err := file.RecoverBefore(ctx, r.ledger.FileOps, nofollow.UntrustedDirs{}, o.Before); err != nil { // retried at the next start
			r.log.Error("what an agent program changed before its process died cannot be put on record; its run cannot be undone as a whole", "err", err)
		}
	}
	return r, nil
}

// assemble sets the builder of the loop's options from the runner's parts.
func (r *Runner) assemble() {
	tools := &toolbox{
		ledger: r.ledger, log: r.log, databases: r.databases, programs: r.programs, prompts: r.Prompts(), undoing: r.Undoing,
		fileLocks: r.fileLocks, before: r.parts.Before, additional: r.parts.Tools, canDeliver: r.parts.CanDeliver,
	}
	r.loop = &optionsBuilder{ledger: r.ledger, plan: r.Plan, placement: r.placement, servers: r.Servers, modules: r.modules, tools: tools}
}

// Set replaces the plan. Runs that have started keep their plan.
func (r *Runner) Set(p plan.Plan) {
	r.Plan.Set(p, r.specs, hostTools(), r.parts.Desktop)
	r.Blockers.Forget() // configured folders and programs may have changed too
	r.Models.Reconsider(p)
}

// Executor combines the parts of a runner that a dispatcher uses. It does not include the policies
// of the jobs.
type Executor struct {
	*Runner
	*notice.Writer
	*blocker.Finder
	*Undoing
}

// Executor returns the runner's Executor.
func (r *Runner) Executor() Executor { return Executor{r, r.Notices, r.Blockers, r.Undoing} }

// Execute executes one attempt with the current plan. It returns an error only if the host is
// broken.
func (r *Runner) Execute(ctx context.Context, run ledger.Run, a ledger.Attempt) (ledger.Result, error) {
	return r.Freeze()(ctx, run, a)
}

// Freeze returns an Execute function that uses the current plan even after Set.
func (r *Runner) Freeze() func(ctx context.Context, run ledger.Run, a ledger.Attempt) (ledger.Result, error) {
	p := r.Plan.Load()
	return func(ctx context.Context, run ledger.Run, a ledger.Attempt) (res ledger.Result, err error) {
		t, err := p.Resolve(run)
		var missing *plan.NotConfiguredError
		switch {
		case errors.As(err, &missing):
			res, err = plan.Failed(domain.OutcomeError, "%s", missing.Error()), nil
			res.Kind = "not configured"
		case err == nil:
			res, err = r.execute(ctx, newAttempt(t, a))
		}

		// The current plan is used, so that secrets added by a reload are redacted too.
		return cleanResult(res, r.Plan.Load().Redactor), err
	}
}

// WakeLimits returns the limits of the wakes that an agent may schedule for itself. It reports
// false if the agent may not schedule wakes.
func (r *Runner) WakeLimits(agent string) (schedule.Limits, bool) {
	a, ok := r.Plan.Load().Agents[agent]
	if !ok || a.SelfScheduling == nil {
		return schedule.Limits{}, false
	}
	return *a.SelfScheduling, true
}

// Sweep removes manifests, received files and recordings that are no longer needed.
func (r *Runner) Sweep(ctx context.Context) error {
	return errors.Join(r.files.SweepManifests(ctx), r.recordings.Sweep(ctx))
}
