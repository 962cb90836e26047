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

// moduleRunner runs modules of skills, either as a run or within a call of another run.
type moduleRunner struct {
	ledger   *ledger.Ledger
	log      *slog.Logger
	plan     *plan.Current
	programs *programs.Hosts
	signIns  *signin.Book // nil if modules cannot sign in
	storage  string       // folder for the storage files of skills; "" disables storage
}

// moduleRun is one run of a module. It ends with close.
type moduleRun struct {
	ledger    *ledger.Ledger
	run       ledger.Run
	skill     *skills.Skill
	program   *module.Program
	wasm      []module.WASM
	outage    moduleOutage
	release   func() error         // lets the machine sleep again; nil if it may sleep
	storage   string               // storage file; "" if storage is disabled
	epoch     string               // ledger epoch of the run
	workspace *workspace.Workspace // workspace of the run; nil for none
	within    bool                 // the module answers a call and does not do the run
	redact    *redact.Redactor
	learn     func(secret string) // adds a secret to the redactors
	signIns   *signin.Book        // nil if modules cannot sign in
	complete  func(context.Context, tool.Invocation, moduleapi.Completion) (moduleapi.Completed, error)
	host      *moduleapi.Host // set by hostTools
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

// storageOf returns the storage file of a skill for an agent, or "" if storage is disabled.
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

	// A required tool of an MCP server needs only its approval, and no entry in the module's
	// settings.
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

// newCompleter returns a completer that asks the task's model for its modules. It returns nil if
// the task does not ask a model.
func newCompleter(ctx context.Context, t *attempt) *loop.Completer {
	if t.relay == nil || !t.AsksModel() {
		return nil
	}
	first := t.relay.Model()
	return &loop.Completer{Provider: t.relay, Fallback: t.relay.Fallback(ctx),
		Model: loop.ModelInfo{Name: first.Name, MaxOutput: first.MaxOutput, Window: first.ContextSize(), Temperature: first.Temperature}}
}

// startModule prepares the provider of a module and launches its first machine: for the next due
// hook, or for execute.
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

// moduleInput returns the input of a module: the input in the request that started the run, or else
// the input of the job. It returns an error if the input does not fit the skill's input schema.
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
		return input, nil // hooks do not receive the input
	}
	if err := moduleapi.CheckValue(t.Job.Skill.Manifest.InputSchema, input); err != nil {
		return nil, fmt.Errorf("the input does not fit the inputSchema of the skill %s: %w", t.Job.Skill.Name, err)
	}
	return input, nil
}

// moduleSeed returns the random seed of a module. It is the same in each attempt of a run and
// differs between runs. of distinguishes the calls and hooks within a run.
func moduleSeed(epoch string, run int64, of string) [32]byte {
	return sha256.Sum256(fmt.Appendf(nil, "module %s %d %s", epoch, run, of))
}

// constants returns the constants of a module's API that identify its run. call is the key of the
// call that the module answers, or "".
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
		_ = m.release() // fails only if already released
	}
	if m.provider != nil && m.provider.instance != nil {
		_ = m.provider.instance.Close() // fails only if the instance has already ended
	}
	if m.host != nil {
		_ = m.host.Close() // acknowledged writes are already on disk
	}
}

// completing returns a function that asks the task's model for a module. If the budget is used up,
// the run ends, even if the module handles the error.
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
		case domain.OutcomeBudget, domain.OutcomeSkipped: // a run that has begun is not skipped
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

// stayAwake keeps the computer awake until the attempt ends, if the skill requires it. It returns
// an error if the computer cannot be kept awake.
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

// moduleWASM returns the audited WebAssembly code of a skill. The code is passed to the module's
// process, because that process cannot open files.
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

// moduleOutage tracks whether a run of a module may be postponed because its model is unavailable.
// It may be postponed only if the model has not answered and no call has had an effect.
type moduleOutage struct {
	mu    sync.Mutex   // needed because a module may ask several questions at a time
	why   *model.Error // last error of the model
	begun bool         // the model has answered, or a call with an effect was made
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

// made notes a call with the effect of its tool. known is set if an earlier attempt has the result.
func (o *moduleOutage) made(c moduleapi.Call, effect domain.Effect, known bool) {
	if c.Asks() && !known || c.Looks() || effect == domain.EffectRead {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begun = true
}

// failure returns the error of the model. It returns nil if the model did not fail, or if it is too
// late to start the run again.
func (o *moduleOutage) failure() *model.Error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.begun {
		return nil
	}
	return o.why
}

// requiredServerTools returns the names of the MCP server tools that a skill requires.
func requiredServerTools(m *skills.Manifest) (out []string) {
	for _, t := range m.RequiredMCPTools {
		out = append(out, mcp.ToolName(t.ServerName, t.ToolName))
	}
	return out
}
