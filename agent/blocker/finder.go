// Package blocker finds obstacles that keep a run from starting, such as a missing folder, program
// or model.
package blocker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rouse/agent/failover"
	"rouse/agent/plan"
	"rouse/agent/preflight"
	"rouse/agent/programs"
	"rouse/agent/servers"
	"rouse/agent/tool/shell"
	"rouse/agentdb/pool"
	"rouse/internal/ledger"
	"rouse/internal/ledger/workspace"
	"rouse/internal/noexec"
)

// Kinds of obstacles. They are part of the API.
const (
	obstacleNoModel     = "no_model"
	obstacleModel       = "model"
	obstacleModelPaused = "model_paused"
	obstacleFolder      = "folder"
	obstacleProgram     = "program"
	obstacleConfinement = "confinement"
	obstacleSkill       = "skill"
	obstacleDatabase    = "database"
	obstacleWorkspace   = "workspace"
	obstacleServer      = "mcp"
	obstacleDisk        = "disk"
)

// skillGoodFor is the time for which a check of a skill stays valid. A check is expensive, because
// it reads the whole skill and compiles its module.
const skillGoodFor = time.Minute

// checks are the checks before a run starts. Add a function here for each new requirement of agents
// or jobs.
var checks = []func(*Finder, context.Context, *plan.Task) []ledger.Obstacle{
	(*Finder).diskObstacles, configuredObstacles, (*Finder).modelObstacles, (*Finder).folderObstacles, (*Finder).programObstacles, (*Finder).executorObstacles, (*Finder).serverObstacles,
	(*Finder).confinementObstacles, (*Finder).skillObstacles,
}

// Finder finds obstacles that keep runs from starting. It caches its findings, so it can be called
// often.
type Finder struct {
	ledger    *ledger.Ledger
	databases *pool.Pool
	plan      *plan.Current
	programs  *programs.Hosts
	models    *failover.Health
	servers   *servers.Catalog
	prober    *preflight.Prober
}

// Options holds the dependencies of a Finder. All are required by Obstacles.
type Options struct {
	Ledger    *ledger.Ledger
	Databases *pool.Pool
	Plan      *plan.Current
	Programs  *programs.Hosts
	Models    *failover.Health
	Servers   *servers.Catalog
}

// New returns a finder with an empty cache.
func New(o Options) *Finder {
	return &Finder{o.Ledger, o.Databases, o.Plan, o.Programs, o.Models, o.Servers, preflight.New()}
}

// Forget clears the cache. Call it when a new plan is in force.
func (f *Finder) Forget() { f.prober.Forget() }

// obstacle returns a list of one obstacle, or nil if why is "".
func obstacle(kind, source, why, where string) []ledger.Obstacle {
	if why == "" {
		return nil
	}
	return []ledger.Obstacle{{Kind: kind, Source: source, Text: why, Where: where}}
}

// Obstacles returns the obstacles that keep a run from starting. For a manual call it checks only
// the database and the workspace.
func (f *Finder) Obstacles(ctx context.Context, run ledger.Run) []ledger.Obstacle {
	t, err := f.plan.Resolve(run)
	if err != nil {
		// A run of a job that is not configured starts and then ends with an error. If only the
		// agent is disabled, the run waits.
		if why, ok := f.plan.Load().Disabled[run.Job]; ok && run.Job != "" {
			return []ledger.Obstacle{why}
		}
		return nil
	}

	var out []ledger.Obstacle
	if why := f.quarantined(t); why != "" {
		out = append(out, ledger.Obstacle{Kind: obstacleDatabase, Source: "database/" + t.Agent.Name, Text: why, Quiet: true})
	}
	if why := f.workspaceBlocked(ctx, t); why != "" {
		out = append(out, ledger.Obstacle{Kind: obstacleWorkspace, Source: "workspace/" + why, Text: why, Quiet: true})
	}
	if t.Detail.Tool != "" || t.Detail.Uninstall {
		return out
	}

	for _, check := range checks {
		out = append(out, check(f, ctx, t)...)
	}
	return out
}

// Recheck repeats the checks that found obstacles. It reports whether an obstacle is gone, and
// returns the time until the next check.
func (f *Finder) Recheck(ctx context.Context) (cleared bool, rest time.Duration) {
	cleared, rest = f.prober.Again()
	return f.models.RetryRefused(ctx) || cleared, rest
}

func (f *Finder) diskObstacles(context.Context, *plan.Task) []ledger.Obstacle {
	return obstacle(obstacleDisk, "disk", f.ledger.DiskFull(), "")
}

func configuredObstacles(_ *Finder, _ context.Context, t *plan.Task) []ledger.Obstacle {
	return append(append([]ledger.Obstacle(nil), t.Agent.Obstacles...), t.Job.Obstacles...)
}

// modelObstacles returns why the model cannot be used. A fallback does not replace a model with an
// invalid key, because that would hide the problem.
func (f *Finder) modelObstacles(_ context.Context, t *plan.Task) []ledger.Obstacle {
	if !t.AsksModel() {
		return nil
	}
	if t.Model == nil {
		return obstacle(obstacleNoModel, "no_model/"+t.Agent.Name, fmt.Sprintf("agent %s has no model; add one under models: in the configuration", t.Agent.Name), t.Agent.Where)
	}

	if len(t.Model.Obstacles) > 0 {
		return t.Model.Obstacles
	}
	// A user's own run tries a paused model, because the quota may have been raised.
	if p, paused := f.models.AllPaused(t.Models, time.Now()); paused && !t.IgnorePause {
		return []ledger.Obstacle{{Kind: obstacleModelPaused, Source: "model_paused/" + p.Model, Text: failover.PauseText(p), Quiet: true}}
	}
	return obstacle(obstacleModel, "model/"+t.Model.Name, f.models.Refusal(t.Model, t.IgnorePause), t.Model.Where)
}

// folderObstacles returns an obstacle for each folder of the run that is missing or not accessible:
// the workdir, granted folders and the watched folder.
func (f *Finder) folderObstacles(_ context.Context, t *plan.Task) (out []ledger.Obstacle) {
	add := func(what, path, where string, look func(path string) string) {
		if path == "" {
			return
		}
		// The key contains the kind of access, because a folder may be readable but not writable.
		if why := f.prober.Look(what+" "+path, func() string { return look(path) }); why != "" {
			out = append(out, obstacle(obstacleFolder, "folder/"+path, what+" "+why, where)...)
		}
	}
	readable := func(path string) string { return preflight.Readable(t.Plan.Boundary, path) }
	writable := func(path string) string { return preflight.Writable(t.Plan.Boundary, path) }

	workdir := writable
	if len(t.Agent.Write) > 0 { // in that case the workdir is only read
		workdir = func(path string) string {
			if preflight.Folder(t.Plan.Boundary, path) == "" {
				return ""
			}
			return writable(path) // the workdir does not exist yet and will be created
		}
	}
	add("the workdir", t.Agent.Workdir, t.Agent.Where, workdir)
	for _, path := range t.Agent.Read {
		if t.Plan.Boundary.Covers(path) { // another agent creates this folder, and could block this agent by removing it
			continue
		}
		add("what the agent was granted to read:", path, t.Agent.Where, readable)
	}
	for _, path := range t.Agent.Write {
		add("what the agent was granted to write:", path, t.Agent.Where, func(path string) string {
			if why := readable(path); why == "" && !isFolder(t, path) { // a single file
				return ""
			}
			return writable(path)
		})
	}

	add("the watched folder", t.Job.Watched.Folder, t.Job.Where, func(path string) string { return preflight.Folder(t.Plan.Boundary, path) })
	for _, path := range t.Job.Watched.MovesTo {
		add("the folder for files that were processed:", path, t.Job.Where, writable)
	}
	return out
}

func isFolder(t *plan.Task, path string) bool {
	info, err := t.Plan.Boundary.Stat(path)
	return err == nil && info.IsDir()
}

// programObstacles returns the granted programs and the programs of conditions that are not
// installed. It ignores paths where agents write, because an agent may make its own programs.
func (f *Finder) programObstacles(_ context.Context, t *plan.Task) (out []ledger.Obstacle) {
	add := func(name, where string, look func() string) {
		source := "program/" + name
		out = append(out, obstacle(obstacleProgram, source, f.prober.Look(source, look), where)...)
	}

	// A playbook names its programs in the arguments of its calls.
	mayRun := func(program string) bool {
		if t.Job.Playbook == nil {
			return true
		}
		for _, c := range t.Job.Playbook {
			if mentions(c.With, program) {
				return true
			}
		}
		return false
	}
	for _, g := range t.Agent.Commands {
		name := ""
		if len(g.Argv) > 0 {
			name = g.Argv[0]
		}
		switch {
		case name == "" || strings.ContainsAny(name, "*?[") || !mayRun(name):
		case !strings.ContainsAny(name, `/\`):
			add(name, t.Agent.Where, func() string {
				if shell.HasProgram(name) {
					return ""
				}
				if found := shell.Elsewhere(name); found != "" {
					return fmt.Sprintf("the granted program %s is at %s, but commands do not look there; write argv: [%[2]s, ...] and the same path in the command", name, found)
				}
				return fmt.Sprintf("the program %s, which is granted, is not installed; install it, or take it out of grants.commands", name)
			})
		case filepath.IsAbs(name) && !t.Plan.Boundary.Covers(name):
			add(name, t.Agent.Where, func() string { return preflight.Program(name) })
		}
	}

	for _, c := range t.Job.When {
		if len(c.Command) == 0 || filepath.IsAbs(c.Command[0]) && t.Plan.Boundary.Covers(c.Command[0]) {
			continue
		}
		name := c.Command[0]
		add("when "+name, c.Where, func() string {
			if _, err := exec.LookPath(name); err != nil {
				return fmt.Sprintf("the program %s of a condition (when:) is not installed: %v", name, err)
			}
			return ""
		})
	}
	return out
}

func mentions(v any, text string) bool {
	switch v := v.(type) {
	case string:
		return strings.Contains(v, text)
	case []any:
		return slices.ContainsFunc(v, func(one any) bool { return mentions(one, text) })
	case map[string]any:
		for _, one := range v {
			if mentions(one, text) {
				return true
			}
		}
	}
	return false
}

// lookFor runs a check that may start a program. If the request must not start programs, it returns
// the last result.
func (f *Finder) lookFor(ctx context.Context, source string, look func() string) string {
	if noexec.Is(ctx) {
		return f.prober.Known(source)
	}
	return f.prober.LookFor(source, skillGoodFor, look)
}

func (f *Finder) skillObstacles(ctx context.Context, t *plan.Task) (out []ledger.Obstacle) {
	add := func(dir, where string, look func() string) {
		source := "skill/" + dir
		out = append(out, obstacle(obstacleSkill, source, f.lookFor(ctx, source, look), where)...)
	}

	if s := t.Job.Skill; s != nil {
		add(s.Dir, t.Job.Where, func() string { return f.programs.ModuleProblem(s) }) //nolint:contextcheck // the result is cached for other requests
	}
	if t.NeedsModel() {
		for _, s := range t.Agent.Skills.Preloaded {
			add(s.Dir, t.Agent.Where, func() string { return programs.SkillProblem(s) })
		}
	}
	return out
}

// executorObstacles returns an obstacle if the executor of the run cannot be started.
func (f *Finder) executorObstacles(_ context.Context, t *plan.Task) []ledger.Obstacle {
	if !t.Executes() {
		return nil
	}

	name := t.Job.Executor.Argv[0]
	why := f.prober.Look("executor/"+t.Agent.Name+"/"+name, func() string {
		if _, err := t.LocateExecutor(); err != nil {
			return "the executor cannot be started: " + err.Error()
		}
		return ""
	})
	return obstacle(obstacleProgram, "executor/"+name, why, t.Job.Where)
}

// serverObstacles returns the MCP servers with a missing program, and the called tools that are not
// approved.
func (f *Finder) serverObstacles(_ context.Context, t *plan.Task) (out []ledger.Obstacle) {
	if !t.UsesServers() {
		return nil
	}

	called := t.CalledTools()
	for _, s := range t.Agent.Servers {
		why := ""
		if len(s.Argv) > 0 && (!filepath.IsAbs(s.Argv[0]) || !t.Plan.Boundary.Covers(s.Argv[0])) {
			why = f.prober.Look("mcp/"+s.Name+"/"+s.Argv[0], func() string { return servers.ProgramProblem(s) })
		}
		if why != "" {
			out = append(out, obstacle(obstacleServer, "mcp/"+s.Name, why, t.Agent.Where)...)
			continue
		}

		for _, name := range servers.CalledOf(s, called) {
			source := "mcp/" + name
			why := f.prober.Look(source, func() string { return f.servers.Unapproved(s, name) })
			out = append(out, obstacle(obstacleServer, source, why, t.Job.Where)...)
		}
	}
	return out
}

// confinementObstacles returns an obstacle if min_tier requires a stronger sandbox than this
// machine has.
func (f *Finder) confinementObstacles(ctx context.Context, t *plan.Task) []ledger.Obstacle {
	uses := t.ProgramUses().All()
	if !t.BlocksWeak() || len(uses) == 0 {
		return nil
	}

	source := fmt.Sprintf("confinement/%s/%s", t.MinTier(), strings.Join(uses, ","))
	return obstacle(obstacleConfinement, source, f.lookFor(ctx, source, func() string { return f.programs.TooWeak(ctx, t) }), t.Agent.Where)
}

// quarantined returns why a run must wait for its agent's database, or "".
func (f *Finder) quarantined(t *plan.Task) string {
	if !t.Agent.Database {
		return ""
	}
	if err := f.databases.Quarantined(t.Agent.Name); err != nil {
		return err.Error()
	}
	return ""
}

// workspaceBlocked returns why the workspace of a run is blocked, or "".
func (f *Finder) workspaceBlocked(ctx context.Context, t *plan.Task) string {
	name := cmp.Or(t.Detail.Workspace, t.Job.Workspace)
	if t.Job.Skill == nil || t.Run.Workspace == 0 && (name == "" || strings.Contains(name, "{{")) {
		return ""
	}

	w, err := f.ledger.Workspaces.Get(ctx, t.Run.Workspace)
	if t.Run.Workspace == 0 {
		w, err = f.ledger.Workspaces.Named(ctx, t.Agent.Name, t.Job.Skill.Name, name)
	}
	if err == nil {
		err = w.Blocked()
	}
	if blocked := (*workspace.BlockedError)(nil); errors.As(err, &blocked) && blocked.Workspace.Status != workspace.Archived {
		return err.Error()
	}
	return "" // the run starts and then ends with the error
}

// ProgramFlaws returns why programs of a job will be refused. It omits a sandbox that is weaker
// than min_tier, because Obstacles reports it.
func (f *Finder) ProgramFlaws(ctx context.Context, job string) []string {
	t, err := f.plan.Resolve(ledger.Run{Job: job})
	if err != nil {
		return nil
	}
	weak := ""
	if !t.BlocksWeak() {
		weak = f.programs.TooWeak(ctx, t)
	}
	return programs.Flaws(weak, f.programs.RepositoryFlaw(ctx, t))
}
