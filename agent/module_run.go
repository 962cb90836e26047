package agent

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/programs"
	"rouse/agent/redact"
	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/agent/tool/mcp"
	"rouse/agent/tool/moduleapi"
	"rouse/agent/tool/moduleapi/signin"
	"rouse/agent/tool/shell"
	"rouse/agent/tool/web"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/workspace"
	"rouse/internal/nosleep"
	"rouse/skills"
	"rouse/skills/install"
	"rouse/skills/module"
)

// moduleRunner runs modules of skills: as a run of their own, or within a call of another run.
type moduleRunner struct {
	ledger   *ledger.Ledger
	log      *slog.Logger
	plan     *plan.Current
	programs *programs.Hosts
	signIns  *signin.Book // nil: modules sign in nowhere
	storage  string       // folder for what skills store, "" if they can store nothing
}

// moduleRun is one run of a module.
type moduleRun struct {
	ledger    *ledger.Ledger
	run       ledger.Run
	skill     *skills.Skill
	program   *module.Program
	wasm      []module.WASM
	outage    moduleOutage
	release   func() error         // lets the machine sleep; nil: it may all the time
	storage   string               // the file of what it stores
	epoch     string               // of the ledger in which the run is
	workspace *workspace.Workspace // that the run works in; nil: none
	within    bool                 // a call of the run, which is no run of its own
	redact    *redact.Redactor
	learn     func(secret string) // keeps it out of every record
	signIns   *signin.Book        // nil: modules sign in nowhere
	complete  func(context.Context, tool.Invocation, moduleapi.Completion) (moduleapi.Completed, error)
	host      *moduleapi.Host // made with the tools
	completer *loop.Completer
	provider  *moduleProvider
}

func (r *moduleRunner) newModuleRun(ctx context.Context, t *attempt, s *skills.Skill) (*moduleRun, error) {
	if err := install.Verify(s); err != nil {
		return nil, plan.EndEarly(domain.OutcomeError, "%v", err)
	}
	if lacks := moduleapi.Missing(s.Manifest); len(lacks) > 0 {
		return nil, plan.EndEarly(domain.OutcomeError, "the skill %s asks for what is not available in this version: %s", s.Name, lacks[0])
	}
	wasm, err := moduleWASM(s)
	if err != nil {
		return nil, plan.EndEarly(domain.OutcomeError, "%v", err)
	}
	machine, err := r.programs.Machine()
	if err != nil {
		return nil, plan.EndEarly(domain.OutcomeError, "modules cannot be run here: %v", err)
	}

	program, err := machine.Compile(ctx, s.Dir)
	var wrong *module.SyntaxError
	switch {
	case errors.As(err, &wrong):
		return nil, plan.EndEarly(domain.OutcomeError, "the module of the skill %s is wrong: %v", s.Name, wrong)
	case err != nil:
		return nil, err
	}

	m := &moduleRun{ledger: r.ledger, run: t.Run, skill: s, program: program, wasm: wasm, storage: r.storageOf(t.Agent.Name, s.Name), epoch: r.ledger.EpochOf(t.Run.ID).ID, redact: redactor(t.Plan.Secrets)}
	m.learn = func(secret string) {
		m.redact.Add(secret)
		r.plan.Learn(secret)
	}
	m.signIns = r.signIns
	if t.Model != nil && t.AsksModel() {
		m.complete = completing(t, m)
	}
	if err := m.stayAwake(ctx); err != nil {
		return nil, plan.EndEarly(domain.OutcomeError, "%v", err)
	}
	return m, nil
}

// storageOf is the file of what a skill stores for an agent, "" where it can store nothing.
func (r *moduleRunner) storageOf(agent, skill string) string {
	if r.storage == "" {
		return ""
	}
	return filepath.Join(r.storage, agent, skill+".db")
}

func (m *moduleRun) hostTools(t *attempt, roots *tool.Roots, granted *tool.Registry) ([]tool.Tool, error) {
	o := moduleapi.Options{
		Agent: t.Agent.Name, Skill: m.skill.Name, Run: m.run.ID, Manifest: m.skill.Manifest, Exports: m.program.Exports(), Roots: roots, Secrets: t.Agent.Secrets, Storage: m.storage, Epoch: m.epoch, Complete: m.complete,
		Ledger: m.ledger, Workspace: m.workspace, Redact: m.redact.Replace,
		Network: web.Options{Grants: t.Agent.Network, Secrets: t.Agent.Secrets, Redact: m.redact.Replace},
		SignIns: m.signIns, Learn: m.learn,
	}
	if f := t.Detail.File; f != nil {
		o.File = f.Path
	}
	if write, ok := granted.Lookup(file.WriteName()); ok {
		o.WriteFile = &write
	}

	// A required tool of an MCP server needs no other permission than its approval.
	required := requiredServerTools(m.skill.Manifest)
	for _, name := range required {
		if _, ok := granted.Lookup(name); !ok {
			server, its, _ := mcp.SplitName(name)
			return nil, fmt.Errorf("the skill %s needs the tool %s of the MCP server %s, which is not approved (rouse mcp-servers show %s), or left out by the tools of the agent", m.skill.Name, its, server, server)
		}
	}
	if len(t.ModuleSettings.Tools) > 0 || len(required) > 0 {
		o.Callable = func(name string) bool {
			one, ok := granted.Lookup(name)
			return ok && one.Spec().Listed() && !one.Ends() && !one.Nests() && (slices.Contains(required, name) || len(t.ModuleSettings.Tools) > 0 && tool.IsAllowed(t.ModuleSettings.Tools, nil, name))
		}
	}
	_, runs := granted.Lookup(shell.RunName())
	o.Capabilities = moduleapi.Capabilities{
		Tools: o.Callable != nil, Network: len(t.Agent.Network) > 0, Model: m.complete != nil, Commands: runs, Writing: o.WriteFile != nil,
		Workspace: m.workspace != nil, SignIns: m.signIns != nil, Within: m.within, Servers: t.Agent.ServerNames(),
	}
	if needed, _ := moduleapi.Ungranted(m.skill.Manifest, o.Capabilities, t.Agent.SecretNames()); len(needed) > 0 {
		return nil, fmt.Errorf("the skill %s needs %s", m.skill.Name, needed[0])
	}

	var err error
	if m.host, err = moduleapi.New(o); err != nil {
		return nil, err
	}
	return m.host.Tools()
}

// newCompleter asks the model of a task for its modules, nil where none is asked.
func newCompleter(ctx context.Context, t *attempt) *loop.Completer {
	if t.relay == nil || !t.AsksModel() {
		return nil
	}
	first := t.relay.Model()
	return &loop.Completer{Provider: t.relay, Fallback: t.relay.Fallback(ctx),
		Model: loop.ModelInfo{Name: first.Name, MaxOutput: first.MaxOutput, Window: first.ContextSize(), Temperature: first.Temperature}}
}

// startModule starts the machine that answers as the provider of a module, after the hooks that are due.
func (r *moduleRunner) startModule(ctx context.Context, m *moduleRun, t *attempt, s module.Start) (err error) {
	p := m.provider
	if p.machine, err = r.programs.Machine(); err != nil {
		return err
	}

	p.start = s
	p.start.AllowedGlobals, p.start.WASM = m.skill.Manifest.Sandbox.AllowedGlobals, m.wasm
	p.start.Surface.Methods, p.start.Surface.Blocking, p.start.Surface.Getters = m.host.Methods(), m.host.Blocking(), m.host.Getters()

	var busy string
	if p.hooks, busy, err = r.openHooks(ctx, m, t); err != nil {
		return err
	}
	switch {
	case busy != "":
		p.stop(&model.End{Outcome: domain.OutcomeError, Error: busy})
		return nil
	case p.hooks.removed(m.skill.Name) != nil:
		p.stop(p.hooks.removed(m.skill.Name))
		return nil
	}
	return p.launch(ctx)
}

// moduleInput is what a module is given: the input of its job, or of whoever started it, checked against its schema (OSL-06).
func moduleInput(t *attempt, data map[string]any) (json.RawMessage, error) {
	input := t.Detail.SkillInput
	if len(input) == 0 {
		v, err := playbook.ExpandValue("input", t.Job.Input, data)
		if err != nil {
			return nil, err
		}
		if v == nil || len(t.Job.Input) == 0 {
			v = map[string]any{}
		}
		if input, err = json.Marshal(v); err != nil {
			return nil, fmt.Errorf("the input cannot be written as JSON: %w", err)
		}
	}

	if t.Detail.Uninstall {
		return input, nil // hooks take none
	}
	if err := moduleapi.CheckValue(t.Job.Skill.Manifest.InputSchema, input); err != nil {
		return nil, fmt.Errorf("the input does not fit the inputSchema of the skill %s: %w", t.Job.Skill.Name, err)
	}
	return input, nil
}

// moduleSeed is the same in each attempt of a run, and in no other run; so it is for each call that a module answers, and each hook.
func moduleSeed(epoch string, run int64, of string) [32]byte {
	return sha256.Sum256(fmt.Appendf(nil, "module %s %d %s", epoch, run, of))
}

// constants are what a module knows of its run, and of the call of a key which it answers.
func (m *moduleRun) constants(config json.RawMessage, call string) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	if config != nil {
		out["config"] = config
	}
	run := fmt.Sprint(m.run.ID)
	for name, v := range map[string]string{"skillId": m.skill.Name, "executionId": strings.TrimSuffix(run+"/"+call, "/"), "runId": run} {
		out[name] = fmt.Appendf(nil, "%q", v)
	}
	return out
}

func (m *moduleRun) close() {
	if m == nil {
		return
	}
	if m.release != nil {
		_ = m.release() // fails only if it was released already
	}
	if m.provider != nil && m.provider.instance != nil {
		_ = m.provider.instance.Close() // it has ended by itself, if not
	}
	if m.host != nil {
		_ = m.host.Close() // what was acknowledged is on disk
	}
}

// completing asks the model of a task for its module. What uses up a budget ends the run, whatever the module makes of it.
func completing(t *attempt, m *moduleRun) func(context.Context, tool.Invocation, moduleapi.Completion) (moduleapi.Completed, error) {
	return func(ctx context.Context, in tool.Invocation, c moduleapi.Completion) (moduleapi.Completed, error) {
		if m.completer == nil {
			return moduleapi.Completed{Why: "the agent has none"}, nil
		}

		res, err := m.completer.Complete(ctx, in, loop.Completion{System: c.System, Messages: c.Messages, MaxOutput: c.MaxTokens, Temperature: c.Temperature})
		if err != nil {
			return moduleapi.Completed{}, err
		}
		if res.Failure != nil {
			t.relay.Fail(ctx, res.Failure)
		}
		m.outage.heard(res)

		done := moduleapi.Completed{Text: res.Summary, Input: res.Usage.Input, Output: res.Usage.Output}
		switch res.Outcome {
		case domain.OutcomeSuccess, domain.OutcomePartial:
			if res.Summary != "" {
				return done, nil
			}
		case domain.OutcomeBudget, domain.OutcomeSkipped: // a day without room is no reason to skip what has begun
			m.provider.stop(&model.End{Outcome: domain.OutcomeBudget, Error: res.Error})
		}

		var failure *model.Error
		done.Why, done.Retryable = res.Error, errors.As(res.Failure, &failure) && failure.Retryable
		if done.Why == "" {
			done.Why = "its answer was empty"
		}
		return done, nil
	}
}

// stayAwake keeps the machine awake until the attempt ends, where the skill asks for that (OSL-37). The error says why it cannot be had.
func (m *moduleRun) stayAwake(ctx context.Context) error {
	if !m.skill.Manifest.StaysAwake() {
		return nil
	}

	release, err := nosleep.Inhibit(ctx, fmt.Sprintf("run %d of the skill %s is on", m.run.ID, m.skill.Name))
	if err != nil {
		return fmt.Errorf("the skill %s needs this machine to be kept awake while it runs: %w", m.skill.Name, err)
	}
	m.release = release
	return nil
}

// moduleWASM returns the audited WebAssembly of a skill. The module's process gets the code,
// because it can open no file (OSL-33).
func moduleWASM(s *skills.Skill) ([]module.WASM, error) {
	codes, err := s.WASMCode()
	if err != nil {
		return nil, err
	}

	var out []module.WASM
	for i, code := range codes {
		w := s.Manifest.WASM[i]
		out = append(out, module.WASM{ID: w.ModuleID, Code: code, Exports: w.Exports, MemoryMB: w.MemoryLimitMB})
	}
	return out, nil
}

// moduleOutage reports whether a run of a module may wait for its model: only if nothing has begun.
type moduleOutage struct {
	mu    sync.Mutex   // a module may ask several questions at a time
	why   *model.Error // the model gave no answer
	begun bool         // it gave one, or a call was made that may have changed something
}

func (o *moduleOutage) heard(res loop.Result) {
	o.mu.Lock()
	defer o.mu.Unlock()

	var e *model.Error
	if errors.As(res.Failure, &e) {
		o.why = e
	} else {
		o.begun = true
	}
}

// made notes a call, with the effect of its tool. known says that an earlier attempt has its result.
func (o *moduleOutage) made(c moduleapi.Call, effect domain.Effect, known bool) {
	if c.Asks() && !known || c.Looks() || effect == domain.EffectRead {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begun = true
}

// failure is that of the model, in a run in which nothing has begun; nil: there is none, or it is too late to begin again.
func (o *moduleOutage) failure() *model.Error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.begun {
		return nil
	}
	return o.why
}

// requiredServerTools returns the names of the tools of MCP servers that a skill needs.
func requiredServerTools(m *skills.Manifest) (out []string) {
	for _, t := range m.RequiredMCPTools {
		out = append(out, mcp.ToolName(t.ServerName, t.ToolName))
	}
	return out
}
