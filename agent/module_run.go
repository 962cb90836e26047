package agent

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/playbook"
	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/agent/tool/host"
	"rouse/agent/tool/shell"
	"rouse/agent/tool/web"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
	"rouse/skills"
	"rouse/skills/install"
	"rouse/skills/module"
)

// moduleMachines are the machine of a runner, made when it is first needed.
type moduleMachines struct {
	mu      sync.Mutex
	machine *module.Machine
}

// machine starts modules, each in a confined process of its own.
func (r *Runner) machine() (*module.Machine, error) {
	r.modules.mu.Lock()
	defer r.modules.mu.Unlock()
	if r.modules.machine != nil {
		return r.modules.machine, nil
	}

	box, err := r.programs.sandboxFor("")
	if err == nil {
		r.modules.machine, err = module.New(module.Options{Sandbox: box})
	}
	return r.modules.machine, err
}

// moduleRun is the module of one attempt.
type moduleRun struct {
	run       ledger.Run
	skill     *skills.Skill
	program   *module.Program
	storage   string // the file of what it stores
	epoch     string // of the ledger in which the run is
	complete  func(context.Context, tool.Invocation, host.Completion) (host.Completed, error)
	host      *host.Host // made with the tools
	completer *loop.Completer
	provider  *moduleProvider
}

// openModule compiles the module of a task, if it has one. With over it cannot be run.
func (r *Runner) openModule(ctx context.Context, run ledger.Run, t *task) (over *ledger.Result, err error) {
	s := t.job.Skill
	if s == nil || t.detail.Tool != "" {
		return nil, nil
	}

	refuse := func(format string, args ...any) (*ledger.Result, error) {
		res := failed(domain.OutcomeError, format, args...)
		return &res, nil
	}
	if err := install.Verify(s); err != nil {
		return refuse("%v", err)
	}
	if lacks := host.Missing(s.Manifest); len(lacks) > 0 {
		return refuse("the skill %s asks for what is not available in this version: %s", s.Name, lacks[0])
	}
	machine, err := r.machine()
	if err != nil {
		return refuse("modules cannot be run here: %v", err)
	}

	program, err := machine.Compile(ctx, s.Dir)
	var wrong *module.SyntaxError
	switch {
	case errors.As(err, &wrong):
		return refuse("the module of the skill %s is wrong: %v", s.Name, wrong)
	case err != nil:
		return nil, err
	}

	t.module = &moduleRun{run: run, skill: s, program: program, epoch: r.ledger.EpochOf(run.ID).ID}
	if r.storage != "" {
		t.module.storage = filepath.Join(r.storage, t.agent.Name, s.Name+".db")
	}
	if t.model != nil {
		t.module.complete = r.completing(*t, t.module)
	}
	return nil, nil
}

// hostTools are the tools for what a module gets of its host, within what its agent was granted.
func (m *moduleRun) hostTools(t task, roots *tool.Roots, granted *tool.Registry) ([]tool.Tool, error) {
	redact := redactor(t.secrets).Replace
	o := host.Options{
		Manifest: m.skill.Manifest, Roots: roots, Secrets: t.agent.Secrets, Storage: m.storage, Epoch: m.epoch, Complete: m.complete,
		Network: web.Options{Grants: t.agent.Network, Secrets: t.agent.Secrets, Redact: redact},
	}
	if f := t.detail.File; f != nil {
		o.File = f.Path
	}
	if write, ok := granted.Lookup(file.WriteName()); ok {
		o.WriteFile = &write
	}

	if len(t.settings.Tools) > 0 {
		o.Callable = func(name string) bool {
			one, ok := granted.Lookup(name)
			return ok && one.Spec().Listed() && !one.Ends() && !one.Nests() && tool.IsAllowed(t.settings.Tools, nil, name)
		}
	}
	_, runs := granted.Lookup(shell.RunName())
	o.Capabilities = host.Capabilities{Tools: o.Callable != nil, Network: len(t.agent.Network) > 0, Model: m.complete != nil, Commands: runs, Writing: o.WriteFile != nil}
	var secrets []string
	for _, g := range t.agent.Secrets {
		secrets = append(secrets, g.Name)
	}
	if needed, _ := host.Ungranted(m.skill.Manifest, o.Capabilities, secrets); len(needed) > 0 {
		return nil, fmt.Errorf("the skill %s needs %s", m.skill.Name, needed[0])
	}

	var err error
	if m.host, err = host.New(o); err != nil {
		return nil, err
	}
	return m.host.Tools()
}

// setModule has the module of a task answer in the loop.
func (r *Runner) setModule(ctx context.Context, o *loop.Options, t task, data map[string]any, past history) error {
	m := t.module
	input, err := moduleInput(t, data)
	if err != nil {
		return err
	}

	seen := &callTimes{Recorder: o.Recorder, prior: past.madeAt, at: map[string]time.Time{}}
	m.provider = &moduleProvider{
		moduleRun: m, times: seen, prior: past.calls, skipped: past.skipped, dry: t.detail.DryRun, registry: o.Registry,
		redact: redactor(t.secrets).Replace, events: newModuleEvents(r.ledger, m.run, redactor(t.secrets)), counts: map[string]int{}, open: map[string]openCall{},
	}
	o.Provider, o.Recorder, o.Policy, o.PriorCalls = m.provider, seen, loop.Playbook(), past.calls
	if t.relay != nil && t.asksModel() {
		first := t.relay.model()
		m.completer = &loop.Completer{Provider: t.relay, Fallback: t.relay.fallback(),
			Model: loop.ModelInfo{Name: first.Name, MaxOutput: first.MaxOutput, Window: first.Window, Temperature: first.Temperature}}
		o.Completer = m.completer
	}

	machine, err := r.machine()
	if err != nil {
		return err
	}
	rules := m.skill.Manifest.Sandbox
	m.provider.instance, err = machine.Start(ctx, m.program, module.Start{
		Export: "execute", Args: input, Seed: moduleSeed(m.epoch, m.run.ID), Now: m.run.StartedAt, AllowedGlobals: rules.AllowedGlobals,
		MemoryMB: min(rules.MaxMemoryMB, module.MaxMemoryMB), Timeout: time.Duration(rules.MaxExecutionMS) * time.Millisecond,
		Surface: module.Surface{Methods: m.host.Methods(), Getters: m.host.Getters(), Constants: m.constants(t.settings.Config)},
	})
	if err != nil {
		return fmt.Errorf("the module of the skill %s cannot be started: %w", m.skill.Name, err)
	}
	return nil
}

// moduleInput is what a module is given: the input of its job, or of whoever started it, checked against its schema (OSL-06).
func moduleInput(t task, data map[string]any) (json.RawMessage, error) {
	input := t.detail.Given
	if len(input) == 0 {
		v, err := playbook.ExpandValue("input", t.job.Input, data)
		if err != nil {
			return nil, err
		}
		if v == nil || len(t.job.Input) == 0 {
			v = map[string]any{}
		}
		if input, err = json.Marshal(v); err != nil {
			return nil, fmt.Errorf("the input cannot be written as JSON: %w", err)
		}
	}

	if err := host.CheckValue(t.job.Skill.Manifest.InputSchema, input); err != nil {
		return nil, fmt.Errorf("the input does not fit the inputSchema of the skill %s: %w", t.job.Skill.Name, err)
	}
	return input, nil
}

// moduleSeed is the same in each attempt of a run, and in no other run.
func moduleSeed(epoch string, run int64) [32]byte {
	return sha256.Sum256(fmt.Appendf(nil, "module %s %d", epoch, run))
}

// constants are what a module knows of its run.
func (m *moduleRun) constants(config json.RawMessage) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	if config != nil {
		out["config"] = config
	}
	for name, v := range map[string]string{"skillId": m.skill.Name, "executionId": fmt.Sprint(m.run.ID), "runId": fmt.Sprint(m.run.ID)} {
		out[name] = fmt.Appendf(nil, "%q", v)
	}
	return out
}

// close ends the process of the module, and closes what it stored.
func (m *moduleRun) close() {
	if m == nil {
		return
	}
	if m.provider != nil && m.provider.instance != nil {
		_ = m.provider.instance.Close() // it has ended by itself, if not
	}
	if m.host != nil {
		_ = m.host.Close() // what was acknowledged is on disk
	}
}

// completing asks the model of a task for its module. What uses up a budget ends the run, whatever the module makes of it.
func (r *Runner) completing(t task, m *moduleRun) func(context.Context, tool.Invocation, host.Completion) (host.Completed, error) {
	return func(ctx context.Context, in tool.Invocation, c host.Completion) (host.Completed, error) {
		if m.completer == nil {
			return host.Completed{Why: "the agent has none"}, nil
		}

		res, err := m.completer.Complete(ctx, in, loop.Completion{System: c.System, Messages: c.Messages, MaxOutput: c.MaxTokens, Temperature: c.Temperature})
		if err != nil {
			return host.Completed{}, err
		}
		if res.Failure != nil {
			t.relay.end(res.Failure)
		}

		done := host.Completed{Text: res.Summary, Input: res.Usage.Input, Output: res.Usage.Output}
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

// callTimes notes when calls came to their end, as the record has it: by that clock a module sees the time, and sees the same
// one in each attempt.
type callTimes struct {
	loop.Recorder
	prior map[string]time.Time // of earlier attempts

	mu sync.Mutex
	at map[string]time.Time
}

// FinishCall implements loop.Recorder.
func (c *callTimes) FinishCall(ctx context.Context, call loop.Call) error {
	at, known := c.prior[call.Key]
	if call.State != domain.CallReplayed || !known {
		at = call.FinishedAt.Truncate(time.Millisecond) // as the ledger keeps it
	}

	c.mu.Lock()
	c.at[call.Key] = at
	c.mu.Unlock()
	return c.Recorder.FinishCall(ctx, call)
}

func (c *callTimes) of(key string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at[key]
}
