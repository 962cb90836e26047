package agent

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"rouse/agent/loop"
	"rouse/agent/permit"
	"rouse/agent/plan"
	"rouse/agent/programs"
	"rouse/agent/prompt"
	"rouse/agent/tool"
	"rouse/agent/tool/control"
	"rouse/agent/tool/db"
	"rouse/agent/tool/executor"
	"rouse/agent/tool/file"
	"rouse/agent/tool/git"
	"rouse/agent/tool/moduleapi"
	"rouse/agent/tool/next"
	"rouse/agent/tool/shell"
	"rouse/agent/tool/skill"
	"rouse/agent/tool/web"
	"rouse/agent/tool/workspace"
	"rouse/agentdb/pool"
	"rouse/internal/ledger"
	"rouse/internal/ledger/artifact"
	"rouse/internal/ledger/fileop"
	"rouse/scheduler/schedule"
)

// toolbox creates the tools of runs.
type toolbox struct {
	ledger     *ledger.Ledger // nil if the tools are only listed and never called
	log        *slog.Logger
	databases  *pool.Pool
	programs   *programs.Hosts
	prompts    prompt.Sources
	undoing    *Undoing
	fileLocks  *tool.Locks
	before     string      // folder for copies of files that agent programs may change
	additional []tool.Tool // tools outside the families
	canDeliver func(ctx context.Context, channel string) (can, why string)
}

// family is a set of tools, with their specs and the functions that create them for a run.
type family struct {
	specs tool.Specs // nil if the specs come from the plan, see plan.NewActive
	// onHost is set if the tools access files or start programs. Agents of ModeNone do not get
	// them.
	onHost bool
	// tools creates the tools of a run, before the agent's allow and deny lists apply. Optional.
	tools func(b *toolbox, t *attempt, roots *tool.Roots) ([]tool.Tool, error)
	// extend adds tools that are built from the granted tools. Optional.
	extend func(t *attempt, roots *tool.Roots, granted *tool.Registry, all []tool.Tool) (*tool.Registry, error)
}

// known caches the families, which are the same for all runs.
var known struct {
	once     sync.Once
	families []family
}

// families returns all tool families. The caller must not change them.
func families() []family {
	known.once.Do(func() {
		known.families = []family{
			{specs: control.Specs(), tools: controlTools},
			{specs: file.Specs().Where(readsHost), tools: toolsOfFiles(readsHost), onHost: true},
			{specs: file.Specs().Where(sharesContent), tools: toolsOfFiles(sharesContent)},
			{specs: db.Specs(), tools: dbTools},
			{specs: next.Specs(), tools: nextTools},
			{specs: shell.Specs(), tools: shellTools, onHost: true},
			{specs: git.Specs(), tools: gitTools, onHost: true},
			{specs: web.Specs(), tools: webTools},
			{specs: workspace.Specs(), tools: workspaceTools},
			{tools: offeredTools},
			{tools: serverTools},
			{specs: tool.Specs{loop.ReduceSpec(reduceText)}, extend: withReduce},
			{specs: skill.Specs(), extend: skillTools},
			{specs: tool.Specs{loop.StepSpec()}, extend: withSteps},
			{specs: moduleapi.Specs(), extend: withHost},
			{specs: executor.Specs()}, // the only tool of its run, see executorRegistry
		}
	})
	return known.families
}

// Specs returns the specs of all built-in tools and of the given tools.
func Specs(beside ...tool.Tool) tool.Specs {
	var out tool.Specs
	for _, f := range families() {
		out = append(out, f.specs...)
	}

	for _, t := range beside {
		out = append(out, t.Spec())
	}
	return out
}

// IsHostTool reports whether a tool accesses files or starts programs. Agents of ModeNone do not
// have such tools.
func IsHostTool(name string) bool {
	return hostTools().Find(name).Name != ""
}

// hostTools returns the specs of the tools for which IsHostTool returns true.
func hostTools() (out tool.Specs) {
	for _, f := range families() {
		if f.onHost {
			out = append(out, f.specs...)
		}
	}
	return out
}

// Specs returns the specs of all tools that the runner's agents can have.
func (r *Runner) Specs() tool.Specs { return r.Plan.Load().Specs }

// checkSpecs returns an error if a spec is invalid or two specs have the same name.
func checkSpecs(specs tool.Specs) error {
	seen := map[string]bool{}
	for _, s := range specs {
		if err := s.Check(); err != nil {
			return err
		}
		if seen[s.Name] {
			return fmt.Errorf("the tool %s is defined twice", s.Name)
		}
		seen[s.Name] = true
	}

	return nil
}

func (b *toolbox) registry(t *attempt) (*tool.Registry, error) {
	roots, err := permit.Roots(b.ledger, &t.Attempt, t.authorizer)
	if err != nil {
		return nil, err
	}

	if t.Executes() {
		return b.executorRegistry(t, roots)
	}

	all, err := b.allTools(t, roots)
	if err != nil {
		return nil, err
	}

	if err := t.calls.use(roots, all); err != nil {
		return nil, err
	}

	// Only models get redacted results. A playbook passes results on to its next calls.
	if t.NeedsModel() && len(t.Plan.Secrets) > 0 {
		all = redactingTools(all, t.Redactor())
	}

	if t.wrapTool != nil {
		for i := range all {
			all[i] = t.wrapTool(all[i])
		}
	}

	registry, err := tool.NewRegistry(all...)
	if err != nil {
		return nil, err
	}

	// The extensions are built from the granted tools, so the agent's lists apply first.
	registry = registry.Filter(t.Agent.Allow, t.Agent.Deny)
	for _, f := range families() {
		if f.extend == nil {
			continue
		}
		if registry, err = f.extend(t, roots, registry, all); err != nil {
			return nil, err
		}
	}

	return registry, t.checkKnown(registry.Names()...)
}

// executorRegistry returns the tool of a run that an executor does.
func (b *toolbox) executorRegistry(t *attempt, roots *tool.Roots) (*tool.Registry, error) {
	launcher, err := b.programs.Launcher(&t.Attempt, roots)
	if err != nil {
		return nil, err
	}
	launcher.Limiter = b.programs.Executors
	launcher.Starting = func(ctx context.Context, s shell.Start) error {
		return b.programs.RecordStart(ctx, t.Run, "executor", s)
	}

	tools, err := t.program.Tools(launcher, b.before)
	if err != nil {
		return nil, err
	}
	registry, err := tool.NewRegistry(tools...)
	if err != nil {
		return nil, err
	}
	return registry, t.checkKnown(registry.Names()...)
}

// allTools returns the tools of a task before its agent's allow and deny lists apply.
func (b *toolbox) allTools(t *attempt, roots *tool.Roots) ([]tool.Tool, error) {
	var all []tool.Tool
	for _, f := range families() {
		if f.tools == nil || f.onHost && t.Agent.Mode == plan.ModeNone {
			continue
		}

		tools, err := f.tools(b, t, roots)
		if err != nil {
			return nil, err
		}
		all = append(all, tools...)
	}

	for _, one := range b.additional {
		if t.given(one.Spec()) {
			all = append(all, one)
		}
	}

	return all, nil
}

// checkKnown returns an error if the plan has no spec for a tool, because code that looks up the
// tool's properties would not find them.
func (t *attempt) checkKnown(names ...string) error {
	for _, name := range names {
		if t.Plan.Specs.Find(name).Name == "" {
			return errors.New("the tool " + name + " is not among the specs of its family")
		}
	}
	return nil
}

// given reports whether the run has a tool before its agent's allow and deny lists apply.
func (t *attempt) given(s tool.Spec) bool {
	switch s.Requires {
	case tool.RequiresModule:
		return t.module != nil
	case tool.RequiresOffer:
		return slices.ContainsFunc(t.offers, func(o offer) bool { return o.Name == s.Name })
	}
	return t.Given(s)
}

func controlTools(b *toolbox, t *attempt, _ *tool.Roots) ([]tool.Tool, error) {
	o := control.Options{Ledger: b.ledger, Channels: t.Plan.Channels, Default: t.Channels, CanDeliver: b.canDeliver, Board: t.board, Redact: t.Redactor().Replace}
	if t.Agent.Database {
		o.Views = func(ctx context.Context) ([]string, error) { return b.prompts.ViewNames(ctx, t.Agent.Name) }
	}

	all, err := control.Tools(o)
	if err != nil || !t.NeedsModel() { // a playbook could not use the answer
		return all, err
	}
	clarify, err := control.Clarify()
	return append(all, clarify), err
}

// sharesContent reports whether a tool passes content to the owner. Agents without files may have
// such tools too.
func sharesContent(s tool.Spec) bool { return s.Writes == tool.WritesArtifact }

func readsHost(s tool.Spec) bool { return !sharesContent(s) }

// fileRecords returns the recorders for file changes and artifacts. If l is nil, they have no
// database: the tools are then only listed and never called.
func fileRecords(l *ledger.Ledger) (*fileop.FileOps, *artifact.Artifacts) {
	if l == nil {
		return &fileop.FileOps{}, &artifact.Artifacts{}
	}
	return l.FileOps, l.Artifacts
}

func toolsOfFiles(chosen func(tool.Spec) bool) func(*toolbox, *attempt, *tool.Roots) ([]tool.Tool, error) {
	wanted := func(name string) bool { return chosen(file.Specs().Find(name)) }
	return func(b *toolbox, t *attempt, roots *tool.Roots) ([]tool.Tool, error) {
		since := func(written string) (time.Time, error) {
			at, err := schedule.ParseTime(written, time.Now(), t.Plan.Zone, false)
			return at.At, err
		}
		changes, artifacts := fileRecords(b.ledger)
		return file.Tools(file.Options{Roots: roots, Wanted: wanted, ContentOnly: t.Agent.Mode == plan.ModeNone, Log: changes, Artifacts: artifacts, Locks: b.fileLocks, Allow: t.Agent.Allow,
			Redact: t.Redactor().Replace, RedactReads: t.NeedsModel(), Viewer: b.programs.Viewer, Since: since, Zone: t.Plan.Zone})
	}
}

func dbTools(b *toolbox, t *attempt, roots *tool.Roots) ([]tool.Tool, error) {
	if !t.Agent.Database {
		return nil, nil
	}
	return db.Tools(db.Options{Pool: b.databases, Roots: roots, Locks: b.fileLocks, Private: t.Agent.PrivateDatabase})
}

func nextTools(b *toolbox, t *attempt, _ *tool.Roots) ([]tool.Tool, error) {
	if t.Agent.SelfScheduling == nil {
		return nil, nil
	}

	o := next.Options{Ledger: b.ledger, Limits: *t.Agent.SelfScheduling, Wake: t.Detail.Wake, Redact: t.Redactor().Replace}
	if by := t.Detail.StartedBy; by != nil { // its wakes belong to the job of the run that started it
		o.Wake = &ledger.WakeDetail{Job: by.Job}
	}
	if t.Agent.Database {
		o.ViewProblem = func(ctx context.Context, name string) (string, error) {
			return b.prompts.CheckView(ctx, t.Agent.Name, name)
		}
	}
	return next.Tools(o)
}

func webTools(_ *toolbox, t *attempt, _ *tool.Roots) ([]tool.Tool, error) {
	return web.Tools(web.Options{Grants: t.Agent.Network, Secrets: t.Agent.Secrets, Addresses: t.OwnersAddresses(), Redact: t.Redactor().Replace})
}

func shellTools(b *toolbox, t *attempt, roots *tool.Roots) ([]tool.Tool, error) {
	host, err := b.programs.Launcher(&t.Attempt, roots)
	if err != nil {
		return nil, err
	}
	changes, _ := fileRecords(b.ledger)
	return shell.Tools(shell.Options{
		Launcher: host, Log: changes, Grants: t.Agent.Commands, MoreGrants: t.allowedBySkills(), Allow: t.Agent.Allow, Secrets: t.Agent.Secrets, Redact: t.Redactor().Replace,
	})
}

func gitTools(b *toolbox, t *attempt, roots *tool.Roots) ([]tool.Tool, error) {
	host, err := b.programs.Launcher(&t.Attempt, roots)
	if err != nil {
		return nil, err
	}
	return git.Tools(git.Options{Launcher: host, Folder: t.Agent.Workdir, Allow: t.Agent.Allow, Redact: t.Redactor().Replace})
}

func workspaceTools(b *toolbox, t *attempt, _ *tool.Roots) ([]tool.Tool, error) {
	kept := t.WorkspaceSkills()
	if len(kept) == 0 {
		return nil, nil
	}
	return workspace.Tools(workspace.Options{Ledger: b.ledger, Skills: kept, Redact: t.Redactor().Replace, Cancelled: func(ctx context.Context, run ledger.Run) {
		if res := b.undoing.OnFinalize(ctx, run, ledger.Result{Outcome: run.Outcome}); res.Error != "" {
			b.log.Info("a run was cancelled while it waited", "job", run.Job, "run", run.ID, "database", res.Error)
		}
	}})
}

// withSteps adds the step tool to a phased run, regardless of the agent's lists.
func withSteps(t *attempt, _ *tool.Roots, granted *tool.Registry, _ []tool.Tool) (*tool.Registry, error) {
	if !t.Phased() {
		return granted, nil
	}

	step, err := loop.StepTool()
	if err != nil {
		return nil, err
	}
	return granted.With(step)
}

// withHost adds the host tools of a run's module. The module's manifest decides which tools
// these are, and the agent's lists do not apply.
func withHost(t *attempt, roots *tool.Roots, granted *tool.Registry, _ []tool.Tool) (*tool.Registry, error) {
	if t.module == nil {
		return granted, nil
	}

	tools, err := t.module.hostTools(t, roots, granted)
	if err != nil {
		return nil, err
	}
	return withTools(granted, tools)
}

func withTools(registry *tool.Registry, tools []tool.Tool) (_ *tool.Registry, err error) {
	for _, one := range tools {
		if registry, err = registry.With(one); err != nil {
			return nil, err
		}
	}
	return registry, nil
}

//go:embed reduce.md
var reduceText string

// withReduce adds the reduce tool if the agent may have it and has a tool to read with.
func withReduce(t *attempt, _ *tool.Roots, granted *tool.Registry, _ []tool.Tool) (*tool.Registry, error) {
	if t.reducer == nil {
		return granted, nil
	}

	reduce, ok, err := t.reducer.Tool(granted, reduceText)
	if err != nil || !ok {
		return granted, err
	}
	if !tool.IsAllowed(t.Agent.Allow, t.Agent.Deny, reduce.Name()) {
		return granted, nil
	}

	return granted.With(reduce)
}

// newReducer returns the reducer of a task, or nil if the task does not need a model.
func newReducer(t *attempt) *loop.Reducer {
	if !t.NeedsModel() {
		return nil
	}
	return &loop.Reducer{System: fmt.Sprintf(`You find something out for %s, an agent that works unattended. Look with your tools, then answer with a digest: only what was asked, with the names, figures and paths that matter, in at most 8,000 characters. Nothing but the digest is kept. Say what you could not find out, and make nothing up.
%s`, t.Agent.Name, prompt.Place(t.Agent))}
}

func serverTools(b *toolbox, t *attempt, roots *tool.Roots) ([]tool.Tool, error) {
	if t.servers == nil {
		return nil, nil
	}
	launcher, err := b.programs.Launcher(&t.Attempt, roots)
	if err != nil {
		return nil, err
	}
	return t.servers.Tools(launcher, roots, t.CalledTools())
}
