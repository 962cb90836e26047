package agent

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"rouse/agent/model"
	"rouse/agent/tool/moduleapi"
	"rouse/agent/tool/moduleapi/store"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/skills"
	"rouse/skills/module"
)

// The hooks of a skill, in calling order. The first four are called before execute, the last two
// before the skill is removed.
const (
	hookInstall   = "onInstall"
	hookUpgrade   = "onUpgrade"
	hookEnable    = "onEnable"
	hookConfigure = "onConfigure"
	hookDisable   = "onDisable"
	hookUninstall = "onUninstall"
)

type hook struct {
	name string
	args json.RawMessage        // argument before host; nil for none
	told func(*store.Lifecycle) // updates the state after the hook has returned
}

// dueHooks returns the hooks that the manifest's version and config require before execute.
func dueHooks(m *skills.Manifest, l store.Lifecycle, config json.RawMessage) []hook {
	if len(config) == 0 {
		config = json.RawMessage("{}")
	}
	hash := fmt.Sprintf("%x", sha256.Sum256(config))
	from, _ := json.Marshal(l.Version) // a string always encodes

	var out []hook
	add := func(due bool, name string, args json.RawMessage, told func(*store.Lifecycle)) {
		if due && slices.Contains(m.LifecycleHooks, name) {
			out = append(out, hook{name, args, told})
		}
	}
	installed := func(l *store.Lifecycle) { l.Version = m.Version }
	add(l.Version == "", hookInstall, nil, installed)
	add(l.Version != "" && l.Version != m.Version, hookUpgrade, from, installed)
	add(!l.Enabled, hookEnable, nil, func(l *store.Lifecycle) { l.Enabled = true })
	add(l.Config != hash, hookConfigure, config, func(l *store.Lifecycle) { l.Config = hash })
	return out
}

// lastHooks returns the hooks that are due before a skill is removed. l is the state of an agent
// that has run the skill.
func lastHooks(m *skills.Manifest, l store.Lifecycle) []hook {
	var out []hook
	if l.Enabled && slices.Contains(m.LifecycleHooks, hookDisable) {
		out = append(out, hook{hookDisable, nil, func(l *store.Lifecycle) { l.Enabled = false }})
	}
	if l.Version != "" && slices.Contains(m.LifecycleHooks, hookUninstall) {
		out = append(out, hook{hookUninstall, nil, func(l *store.Lifecycle) { *l = store.Lifecycle{} }})
	}
	return out
}

// moduleHooks calls the due hooks before the module, each in its own machine. A hook is due until
// it has returned.
type moduleHooks struct {
	host    *moduleapi.Host
	run     ledger.Run
	removes bool // the run only calls the last hooks of a skill, and not execute

	due     []hook // hooks to call, the current one first
	skipped []hook // due hooks that a dry run does not call
	state   store.Lifecycle
}

// openHooks finds the hooks that are due for a task and claims them for its run. busy is the error
// message if another run is calling hooks of the skill, or "".
func (r *moduleRunner) openHooks(ctx context.Context, m *moduleRun, t *attempt) (h *moduleHooks, busy string, err error) {
	h = &moduleHooks{host: m.host, run: m.run, removes: t.Detail.Uninstall}
	manifest := m.skill.Manifest
	if len(manifest.LifecycleHooks) == 0 {
		return h, "", nil
	}

	due := func(l store.Lifecycle) []hook {
		if h.removes {
			return lastHooks(manifest, l)
		}
		return dueHooks(manifest, l, t.ModuleSettings.Config)
	}
	if h.state, err = m.host.Storage().Lifecycle(ctx); err != nil {
		return nil, "", err
	}
	h.due = due(h.state)
	known := h.removes || h.state.Version == manifest.Version && h.state.Enabled
	switch {
	case len(h.due) == 0 && known:
		return h, "", nil
	case t.Detail.DryRun:
		h.skipped, h.due = h.due, nil
		return h, "", nil
	}

	state, by, err := m.host.Storage().ClaimHooks(ctx, m.run.ID, func(run int64) (bool, error) { return r.isOver(ctx, run) })
	switch {
	case err != nil:
		return nil, "", err
	case by != 0:
		return h, fmt.Sprintf("run %d calls hooks of the skill %s for this agent, and is not over; start this run again when it is", by, m.skill.Name), nil
	}

	h.state, h.due = state, due(state)
	if !h.removes {
		h.settle(manifest)
	}
	if len(h.due) == 0 {
		err = h.host.Storage().NoteHooks(ctx, m.run.ID, h.state, true)
	}
	return h, "", err
}

// settle updates the parts of the state that no due hook will update. Later runs use the state to
// find due hooks.
func (h *moduleHooks) settle(m *skills.Manifest) {
	isDue := func(names ...string) bool {
		return slices.ContainsFunc(h.due, func(one hook) bool { return slices.Contains(names, one.name) })
	}
	if !isDue(hookInstall, hookUpgrade) {
		h.state.Version = m.Version
	}
	if !isDue(hookEnable) {
		h.state.Enabled = true
	}
}

func (r *moduleRunner) isOver(ctx context.Context, run int64) (bool, error) {
	other, err := r.ledger.Runs.Get(ctx, run)
	if errors.Is(err, ledger.ErrNotFound) {
		return true, nil
	}
	return other.State == domain.StateFinished, err
}

// now returns the name of the current hook, or "" if no hook is left.
func (h *moduleHooks) now() string {
	if h == nil || len(h.due) == 0 {
		return ""
	}
	return h.due[0].name
}

func (h *moduleHooks) returned(ctx context.Context) error {
	h.due[0].told(&h.state)
	h.due = h.due[1:]
	// The hook was called, so this is recorded even if the run has been cancelled.
	return h.host.Storage().NoteHooks(context.WithoutCancel(ctx), h.run.ID, h.state, len(h.due) == 0)
}

// launch starts the module in a new machine. It calls the next due hook, or the run's export if no
// hook is left.
func (p *moduleProvider) launch(ctx context.Context) error {
	if p.instance != nil {
		if err := p.instance.Close(); err != nil {
			return err
		}
	}

	p.host.Begin()
	rules, s := p.skill.Manifest.Sandbox, p.start
	s.Seed = moduleSeed(p.epoch, p.run.ID, p.within)
	if name := p.hooks.now(); name != "" {
		s.Export, s.Args, s.HostAlone, s.Seed = name, p.hooks.due[0].args, p.hooks.due[0].args == nil, moduleSeed(p.epoch, p.run.ID, p.within+"hook "+name)
		s.Surface = withoutRun(s.Surface)
		p.events.add(eventLog, map[string]any{"level": "info", "text": "the hook " + name + " is called"})
	}
	s.MemoryMB, s.Timeout = min(rules.MaxMemoryMB, module.MaxMemoryMB), time.Duration(rules.MaxExecutionMS)*time.Millisecond

	var err error
	if p.instance, err = p.machine.Start(ctx, p.program, s); err != nil {
		return fmt.Errorf("the module of the skill %s cannot be started: %w", p.skill.Name, err)
	}
	return nil
}

// withoutRun returns the surface without host.run, which is only for execute.
func withoutRun(s module.Surface) module.Surface {
	of := func(name string) bool { return strings.HasPrefix(name, "run.") }
	s.Methods, s.Getters = slices.DeleteFunc(slices.Clone(s.Methods), of), maps.Clone(s.Getters)
	maps.DeleteFunc(s.Getters, func(name string, _ json.RawMessage) bool { return of(name) })
	return s
}

// endedBy handles the end of a machine. After a hook that returned, it launches the next hook or
// execute. Otherwise it returns the end of the run.
func (p *moduleProvider) endedBy(ctx context.Context, e *module.End) (*model.End, error) {
	name := p.hooks.now()
	switch {
	case name == "":
		return p.end(e), nil
	case e.Status != module.Returned:
		end := p.end(e)
		end.Error = fmt.Sprintf("the hook %s of the skill %s failed, and is called again by the next run: %s", name, p.skill.Name, end.Error)
		return end, nil
	}

	if err := p.hooks.returned(ctx); err != nil {
		return nil, err
	}
	if end := p.hooks.removed(p.skill.Name); end != nil {
		return end, nil
	}
	p.ended, p.held = nil, nil
	return nil, p.launch(ctx)
}

// removed returns the end of a run that only calls the last hooks of a skill. It returns nil if a
// hook is left or the run has another purpose.
func (h *moduleHooks) removed(skill string) *model.End {
	if !h.removes || len(h.due) > 0 {
		return nil
	}
	return &model.End{Outcome: domain.OutcomeSuccess, Summary: fmt.Sprintf("the skill %s was told that it is removed", skill)}
}

// left returns the part of a dry run's summary that names the skipped hooks, or "".
func (h *moduleHooks) left() string {
	var names []string
	for _, one := range h.skipped {
		names = append(names, one.name)
	}
	if len(names) == 0 {
		return ""
	}
	return "the hooks " + strings.Join(names, ", ") + " would come first; "
}
