package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"rouse/agent/tool/host"
	"rouse/agentdb/ledger"
	"rouse/cmd/internal/access"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/internal/domain"
	"rouse/internal/text"
	"rouse/watcher"
)

// Fire implements web.Backend.
func (d *Daemon) Fire(ctx context.Context, f api.RunRequest) (int64, error) {
	now := d.Current()
	if err := now.usable(); err != nil {
		return 0, err
	}
	if err := now.known(f.Job, f.Agent); err != nil {
		return 0, err
	}
	if err := d.refuseSecrets(f); err != nil {
		return 0, err
	}

	req := ledger.Request{Job: f.Job, Agent: f.Agent, Trigger: cmp.Or(f.Trigger, domain.TriggerManual), Detail: ledger.Detail{
		Input: f.Input, Prompt: f.Prompt, Session: f.Session, Fresh: f.Fresh, Chat: f.Chat, Tool: f.Tool, Args: f.Args, Check: f.Check,
		Skill: f.Skill, Given: f.Given, DryRun: f.DryRun, Workspace: f.Workspace, Removes: f.Removes, Untrusted: f.Untrusted,
	}}
	if err := now.hasSession(f); err != nil {
		return 0, err
	}
	if err := nameOnce(&req, f); err != nil {
		return 0, err
	}
	if f.Key != "" { // before anything else is looked at: what was accepted once stays accepted
		if run, known, err := d.askedBefore(ctx, req); known || err != nil {
			return run, otherRequest(err, f.Key)
		}
	}

	if f.Job != "" {
		j := now.Config.Jobs[slices.Index(now.JobNames(), f.Job)]
		if !config.On(j.Enabled) {
			return 0, &api.Error{Status: 409, Message: fmt.Sprintf("the job %s is disabled (enabled: false at %s)", f.Job, j.At)}
		}

		req.Agent = j.Agent
		// Through the watch, so that the same content is not processed twice.
		if f.File != "" || converges(&j) {
			if err := d.admit(ctx, access.Caller(ctx), req); err != nil {
				return 0, err
			}
			return d.fireWatch(ctx, &j, f)
		}
	} else if f.Skill != "" {
		if err := now.runnable(f); err != nil {
			return 0, err
		}
	} else if s := d.runner.Specs().Find(f.Tool); f.Tool != "" && (s.Name == "" || !s.Listed()) {
		return 0, &api.Error{Status: 404, Message: text.NoSuch("tool", f.Tool, d.runner.Specs().Callable()), Usage: true}
	}

	if err := d.admit(ctx, access.Caller(ctx), req); err != nil {
		return 0, err
	}
	run, _, err := d.enqueueOnce(ctx, req)
	return run, otherRequest(err, f.Key)
}

// maxSessionKey bounds the key of a session, in characters.
const maxSessionKey = 200

// hasSession refuses a session, or a fresh beginning of one, where there is none.
func (s *Setup) hasSession(f api.RunRequest) error {
	refuse := func(format string, args ...any) error {
		return &api.Error{Status: 400, Message: fmt.Sprintf(format, args...), Usage: true}
	}
	switch {
	case f.Session != "" && f.Prompt == "":
		return refuse("a session is for an agent and a prompt; the runs of a job have one with session: keep in the configuration")
	case utf8.RuneCountInString(f.Session) > maxSessionKey:
		return refuse("the key of a session has up to %d characters, not %d", maxSessionKey, utf8.RuneCountInString(f.Session))
	case !f.Fresh || f.Session != "":
		return nil
	case f.Job == "":
		return refuse("there is no session that could begin again: name one, or a job that keeps one")
	}

	j := &s.Config.Jobs[slices.Index(s.JobNames(), f.Job)]
	switch {
	case j.Session != config.SessionKeep:
		return refuse("the job %s keeps no session, so that each of its runs is fresh; session: keep (%s) would keep one", j.Name, j.At)
	case f.File != "" || converges(j):
		return refuse("a run of job %s that takes a file or a folder cannot begin its session again", j.Name)
	}
	return nil
}

// runnable says what keeps a skill from being run with what it is given.
func (s *Setup) runnable(f api.RunRequest) error {
	modules := s.plan.Plan.Modules
	skill, ok := modules[f.Skill]
	if !ok {
		return &api.Error{Status: 404, Message: text.NoSuch("skill with a module", f.Skill, slices.Sorted(maps.Keys(modules))), Usage: true}
	}
	if lacks := host.Missing(skill.Manifest); len(lacks) > 0 {
		return &api.Error{Status: 400, Message: fmt.Sprintf("the skill %s asks for what is not available in this version: %s", f.Skill, strings.Join(lacks, ", "))}
	}
	switch keeps := host.KeepsWorkspace(skill.Manifest); {
	case f.Removes:
		return nil // it is asked for nothing that its settings or its input are for
	case f.Workspace != "" && !keeps:
		return &api.Error{Status: 400, Message: fmt.Sprintf("the skill %s keeps no workspaces", f.Skill), Usage: true}
	case f.Workspace == "" && skill.Manifest.NeedsWorkspace():
		return &api.Error{Status: 400, Message: fmt.Sprintf("the skill %s works in a workspace: name one with --workspace", f.Skill), Usage: true}
	}
	if _, err := s.Config.ModuleConfig(skill); err != nil {
		return &api.Error{Status: 400, Message: fmt.Sprintf("the settings of the skill %s (skills.settings): %v", f.Skill, err)}
	}
	if err := host.CheckValue(skill.Manifest.InputSchema, f.Given); err != nil {
		return &api.Error{Status: 400, Message: fmt.Sprintf("the input does not fit the inputSchema of the skill %s: %v", f.Skill, err), Usage: true}
	}
	return nil
}

// refuseSecrets refuses a request that would put a secret of the configuration into the history.
// Redacting it instead would start a run on a text that nobody wrote.
func (d *Daemon) refuseSecrets(f api.RunRequest) error {
	for what, value := range map[string]any{"prompt holds": f.Prompt, "input holds": f.Input, "session holds": f.Session, "arguments hold": f.Args, "input of the skill holds": f.Given, "Idempotency-Key holds": f.Key} {
		// As JSON, which covers values that are nested in the input or the arguments.
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if d.runner.Redact(string(text)) != string(text) {
			return &api.Error{Status: 400, Message: fmt.Sprintf("the %s the value of a secret of the configuration, and would stand in the history; leave it out: what needs a secret gets it from the configuration", what)}
		}
	}
	return nil
}

// converges says whether a job is about the state of a folder rather than single files.
func converges(j *config.Job) bool {
	return j.Watch != nil && j.Watch.Mode == watcher.ModeConverge
}

// fireWatch does manually what the watch of a job does: it claims a file as if it had been dropped,
// or the watched folder as if it had changed.
func (d *Daemon) fireWatch(ctx context.Context, j *config.Job, f api.RunRequest) (int64, error) {
	switch {
	case len(f.Input) > 0:
		return 0, &api.Error{Status: 400, Message: fmt.Sprintf("a run of job %s that takes a file or a folder takes no input", j.Name), Usage: true}
	case f.Key != "":
		return 0, &api.Error{Status: 400, Message: fmt.Sprintf("a run of job %s that takes a file or a folder takes no Idempotency-Key: the same content is taken once", j.Name), Usage: true}
	case f.File == "":
		return d.fireFolder(ctx, j)
	case converges(j):
		return 0, &api.Error{Status: 400, Message: fmt.Sprintf("job %s takes its folder as a whole, not a file (mode: converge); start it with: rouse run %s", j.Name, j.Name), Usage: true}
	}

	if err := d.refuseElsewhere(string(j.Name)); err != nil {
		return 0, err
	}

	// A job without a watch can be given a file too.
	plan := d.Current().plan.Plan
	w := watcher.Watch{Job: string(j.Name), Agent: j.Agent, Boundary: plan.Boundary, Definition: plan.Fingerprint(string(j.Name)), OwnFolder: ownFolder(j, plan)}
	if j.Watch != nil {
		w = newWatch(j, plan)
	}

	file, err := d.readable(ctx, j, f.File)
	if err != nil {
		return 0, err
	}
	a, err := watcher.EnqueueFile(ctx, d.ledger, w, file, f.Again)
	if err != nil {
		return 0, &api.Error{Status: 400, Message: err.Error()}
	}

	if a.Blocked {
		if a.Outcome == "" {
			return 0, &api.Error{Status: 409, Message: fmt.Sprintf("run %d has this file and is not finished yet; see: rouse show %[1]d", a.Run)}
		}
		return 0, &api.Error{Status: 409, Message: fmt.Sprintf("this content at this path was processed before, by run %d (%s); see: rouse show %[1]d. To process it again: rouse run %[3]s --file %[4]s --again",
			a.Run, a.Outcome, j.Name, text.ShellWord(string(f.File)))}
	}

	return a.Run, nil
}

// fireFolder starts the run of a folder.
func (d *Daemon) fireFolder(ctx context.Context, j *config.Job) (int64, error) {
	if err := d.refuseElsewhere(string(j.Name)); err != nil {
		return 0, err
	}

	var a ledger.Accepted
	var err error
	// A running watcher keeps the state of the folder, so it has to start the run itself.
	if d.watcher != nil {
		a, err = d.watcher.Trigger(ctx, string(j.Name))
	} else {
		a, err = watcher.Trigger(ctx, d.ledger, d.Current().plan.watches, string(j.Name))
	}

	switch {
	case errors.Is(err, watcher.ErrBusy) && d.watcher == nil:
		return 0, &api.Error{Status: 409, Message: err.Error() + ", which takes a daemon: rouse serve"}
	case errors.Is(err, watcher.ErrBusy):
		return 0, &api.Error{Status: 409, Message: err.Error()}
	case err != nil:
		return 0, &api.Error{Status: 400, Message: err.Error()}
	}

	return a.Run, nil
}
