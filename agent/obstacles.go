package agent

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"rouse/agent/failover"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/preflight"
	"rouse/agent/tool/executor"
	"rouse/agent/tool/host"
	"rouse/agent/tool/mcp"
	"rouse/agent/tool/shell"
	"rouse/internal/ledger"
	"rouse/internal/noexec"
	"rouse/skills"
	"rouse/skills/install"
	"rouse/skills/module"
)

// The kinds of obstacles, which programs read.
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

// skillGoodFor is how long a skill is taken to be what it was: to look at one reads all of it, and compiles its module.
const skillGoodFor = time.Minute

// checks are all that is looked at before a run may begin. A new need of agents or jobs is a function here.
var checks = []func(*Runner, context.Context, *plan.Task) []ledger.Obstacle{
	(*Runner).diskObstacles, configuredObstacles, (*Runner).modelObstacles, (*Runner).folderObstacles, (*Runner).programObstacles, (*Runner).executorObstacles, (*Runner).serverObstacles,
	(*Runner).confinementObstacles, (*Runner).skillObstacles,
}

// obstacle returns a list of one obstacle, or nil if why is "".
func obstacle(kind, source, why, where string) []ledger.Obstacle {
	if why == "" {
		return nil
	}
	return []ledger.Obstacle{{Kind: kind, Source: source, Text: why, Where: where}}
}

// Obstacles returns what keeps a run from starting. A manual call needs only the database.
func (r *Runner) Obstacles(ctx context.Context, run ledger.Run) []ledger.Obstacle {
	t, err := r.Plan.Resolve(run)
	if err != nil {
		// A job that is not configured starts, and its end says so. One whose agent is only disabled waits.
		if why, ok := r.Plan.Load().Disabled[run.Job]; ok && run.Job != "" {
			return []ledger.Obstacle{why}
		}
		return nil
	}

	var out []ledger.Obstacle
	if why := r.quarantined(t); why != "" {
		out = append(out, ledger.Obstacle{Kind: obstacleDatabase, Source: "database/" + t.Agent.Name, Text: why, Quiet: true})
	}
	if why := r.workspaceBlocked(ctx, t); why != "" {
		out = append(out, ledger.Obstacle{Kind: obstacleWorkspace, Source: "workspace/" + why, Text: why, Quiet: true})
	}
	if t.Detail.Tool != "" || t.Detail.Removes {
		return out
	}

	for _, check := range checks {
		out = append(out, check(r, ctx, t)...)
	}
	return out
}

// LookAgain checks again what was in the way of runs. It reports whether something is cleared, and
// when to look again.
func (r *Runner) LookAgain(ctx context.Context) (cleared bool, rest time.Duration) {
	cleared, rest = r.prober.Again()
	return r.Models.RetryRefused(ctx) || cleared, rest
}

func (r *Runner) diskObstacles(context.Context, *plan.Task) []ledger.Obstacle {
	return obstacle(obstacleDisk, "disk", r.ledger.NoRoom(), "")
}

func configuredObstacles(_ *Runner, _ context.Context, t *plan.Task) []ledger.Obstacle {
	return append(append([]ledger.Obstacle(nil), t.Agent.Obstacles...), t.Job.Obstacles...)
}

// modelObstacles returns why the model cannot be asked. A fallback does not stand in for a model
// with a bad key, because that would hide the problem.
func (r *Runner) modelObstacles(_ context.Context, t *plan.Task) []ledger.Obstacle {
	if !t.AsksModel() {
		return nil
	}
	if t.Model == nil {
		return obstacle(obstacleNoModel, "no_model/"+t.Agent.Name, fmt.Sprintf("agent %s has no model; add one under models: in the configuration", t.Agent.Name), t.Agent.Where)
	}

	if len(t.Model.Obstacles) > 0 {
		return t.Model.Obstacles
	}
	// A person tries what may have been paid for, or mended.
	if p, paused := r.Models.AllPaused(t.Models, time.Now()); paused && !t.IgnorePause {
		return []ledger.Obstacle{{Kind: obstacleModelPaused, Source: "model_paused/" + p.Model, Text: failover.PauseText(p), Quiet: true}}
	}
	return obstacle(obstacleModel, "model/"+t.Model.Name, r.Models.Refusal(t.Model, t.IgnorePause), t.Model.Where)
}

// folderObstacles are folders that the run works in, reads, or was started by, and that are gone or not what they were.
func (r *Runner) folderObstacles(_ context.Context, t *plan.Task) (out []ledger.Obstacle) {
	add := func(what, path, where string, look func(path string) string) {
		if path == "" {
			return
		}
		// The key has the kind of access: a folder may be readable and not writable.
		if why := r.prober.Look(what+" "+path, func() string { return look(path) }); why != "" {
			out = append(out, obstacle(obstacleFolder, "folder/"+path, what+" "+why, where)...)
		}
	}
	readable := func(path string) string { return preflight.Readable(t.Plan.Boundary, path) }
	writable := func(path string) string { return preflight.Writable(t.Plan.Boundary, path) }

	workdir := writable
	if len(t.Agent.Write) > 0 { // which leaves the workdir to be read
		workdir = func(path string) string {
			if preflight.Folder(t.Plan.Boundary, path) == "" {
				return ""
			}
			return writable(path) // it is made
		}
	}
	add("the workdir", t.Agent.Workdir, t.Agent.Where, workdir)
	for _, path := range t.Agent.Read {
		if t.Plan.Boundary.Covers(path) { // another agent makes it, and could keep this one from working
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

// programObstacles returns programs that are granted, or that a condition starts, and that are not
// installed. It ignores paths where agents write, because an agent may make its own programs.
func (r *Runner) programObstacles(_ context.Context, t *plan.Task) (out []ledger.Obstacle) {
	add := func(name, where string, look func() string) {
		source := "program/" + name
		out = append(out, obstacle(obstacleProgram, source, r.prober.Look(source, look), where)...)
	}

	// A fixed list of calls names its programs in its arguments.
	mayRun := func(program string) bool {
		return t.Job.Playbook == nil || slices.ContainsFunc(t.Job.Playbook, func(c playbook.Call) bool { return mentions(c.With, program) })
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

// lookFor looks at what takes a program to find out. A request that must start none gets what was found last.
func (r *Runner) lookFor(ctx context.Context, source string, look func() string) string {
	if noexec.Is(ctx) {
		return r.prober.Known(source)
	}
	return r.prober.LookFor(source, skillGoodFor, look)
}

func (r *Runner) skillObstacles(ctx context.Context, t *plan.Task) (out []ledger.Obstacle) {
	add := func(s *skills.Skill, where string, look func() string) {
		source := "skill/" + s.Dir
		out = append(out, obstacle(obstacleSkill, source, r.lookFor(ctx, source, look), where)...)
	}

	if s := t.Job.Skill; s != nil {
		add(s, t.Job.Where, func() string { return r.moduleObstacle(s) }) //nolint:contextcheck // what is found is kept for others than who asked
	}
	if t.NeedsModel() {
		for _, s := range t.Agent.Skills.Preloaded {
			add(s, t.Agent.Where, func() string { return skillObstacle(s) })
		}
	}
	return out
}

func skillObstacle(s *skills.Skill) string {
	err := install.Verify(s)
	if err == nil {
		_, err = s.Content()
	}
	if err != nil {
		return fmt.Sprintf("the skill %s cannot be used: %v", s.Name, err)
	}
	return ""
}

func (r *Runner) moduleObstacle(s *skills.Skill) string {
	if err := install.Verify(s); err != nil {
		return fmt.Sprintf("the skill %s cannot be used: %v", s.Name, err)
	}

	why := s.Manifest.Obstacles(runtime.GOOS)
	for _, lack := range host.Missing(s.Manifest) {
		why = append(why, "it asks for what is not available in this version: "+lack)
	}
	if len(why) > 0 {
		return fmt.Sprintf("the skill %s cannot run here: %s", s.Name, strings.Join(why, "; "))
	}

	machine, err := r.machine()
	if err != nil {
		return fmt.Sprintf("modules cannot be run here: %v", err)
	}
	var wrong *module.SyntaxError
	if _, err = machine.Compile(context.Background(), s.Dir); errors.As(err, &wrong) {
		return fmt.Sprintf("the module of the skill %s does not compile: %v", s.Name, wrong)
	}
	return "" // any other failure is the run's to tell
}

// executorObstacles are an installed agent program that does the run, and that cannot be started.
func (r *Runner) executorObstacles(_ context.Context, t *plan.Task) []ledger.Obstacle {
	if !t.Executes() {
		return nil
	}

	name := t.Job.Executor.Argv[0]
	why := r.prober.Look("executor/"+t.Agent.Name+"/"+name, func() string {
		located, err := executor.Locate(name)
		if err == nil {
			err = ledProgram(t, *t.Job.Executor, located)
		}
		if err != nil {
			return "the executor cannot be started: " + err.Error()
		}
		return ""
	})
	return obstacle(obstacleProgram, "executor/"+name, why, t.Job.Where)
}

// serverObstacles returns MCP servers whose program is missing, and called tools that are not
// approved.
func (r *Runner) serverObstacles(_ context.Context, t *plan.Task) (out []ledger.Obstacle) {
	if !t.UsesServers() {
		return nil
	}

	called := t.CalledTools()
	for _, s := range t.Agent.Servers {
		if why := r.serverProgram(t, s); why != "" {
			out = append(out, obstacle(obstacleServer, "mcp/"+s.Name, why, t.Agent.Where)...)
			continue
		}

		for _, name := range called {
			if server, its, ok := mcp.SplitName(name); ok && server == s.Name {
				out = append(out, obstacle(obstacleServer, "mcp/"+name, r.unapproved(s, its), t.Job.Where)...)
			}
		}
	}
	return out
}

func (r *Runner) unapproved(s mcp.Server, name string) string {
	return r.prober.Look("mcp/"+mcp.ToolName(s.Name, name), func() string {
		rec, err := r.servers.Of(s)
		if err != nil {
			return err.Error()
		}
		if slices.ContainsFunc(rec.ApprovedTools(s), func(d mcp.Definition) bool { return d.Name == name }) {
			return ""
		}
		return fmt.Sprintf("the tool %s of the MCP server %s is not approved; look: rouse mcp-servers show %[2]s; then: rouse mcp-servers approve %[2]s", name, s.Name)
	})
}

func (r *Runner) serverProgram(t *plan.Task, s mcp.Server) string {
	if len(s.Argv) == 0 || filepath.IsAbs(s.Argv[0]) && t.Plan.Boundary.Covers(s.Argv[0]) {
		return ""
	}

	name := s.Argv[0]
	return r.prober.Look("mcp/"+s.Name+"/"+name, func() string {
		switch {
		case filepath.IsAbs(name):
			if why := preflight.Program(name); why != "" {
				return fmt.Sprintf("of the MCP server %s: %s", s.Name, why)
			}
		case !strings.ContainsAny(name, `/\`) && !shell.HasProgram(name):
			return fmt.Sprintf("the program %s of the MCP server %s is not installed; install it, or write its path under argv", name, s.Name)
		}
		return ""
	})
}
