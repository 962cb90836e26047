package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"rouse/internal/domain"
	"rouse/internal/fspath"
	"rouse/internal/ledger"
	"rouse/internal/owner"
)

// task is everything that a run asks for. It is resolved from the plan once, and does not change.
type task struct {
	plan   *Plan // that it was resolved from
	run    ledger.Run
	agent  Agent
	job    Job
	origin *Job          // of what another run asked for: the job at the beginning of its chain, nil when there is none
	detail ledger.Detail // what triggered the run, as the job takes it now
	model  *Model
	models []*Model // the model and its fallbacks; none without one
	notify Notify   // which outcomes and channels get notices
	told   []string // its notice channels: of the job, the agent, or the default channels
	usual  []string // the default ones
	// unattended: no person started it, who would see at once that it fails.
	unattended bool
	// insists: a person started it, or had it tried again, and may have paid for a model that is paused.
	insists  bool
	settings ModuleSettings // of the module that it runs
}

// notConfiguredError says that the plan lacks what a run asks for. It is for the run's owner.
type notConfiguredError struct{ kind, name string }

func (e *notConfiguredError) Error() string {
	return fmt.Sprintf("the %s %q is no longer in the configuration, or is disabled", e.kind, e.name)
}

// resolve finds what a run asks for. The error is a *notConfiguredError unless the record is
// damaged. The task is usable for notices even then.
func (p *Plan) resolve(run ledger.Run) (*task, error) {
	d, damaged := parseDetail(run)
	t := &task{
		plan: p, run: run, detail: d, unattended: run.Trigger != domain.TriggerManual, insists: run.Trigger == domain.TriggerManual || d.Retried,
		origin: p.originJob(run, d), job: Job{Name: run.Job, Agent: run.Agent, Prompt: d.Prompt},
	}

	t.usual = p.channelsOr()
	t.told = p.channelsOr(t.governingJob().Notify.Channels, p.Agents[run.Agent].Channels)
	if run.Job != "" {
		job, ok := p.Jobs[run.Job]
		if !ok {
			return t, cmp.Or[error](damaged, &notConfiguredError{"job", run.Job})
		}
		t.told = p.channelsOr(job.Notify.Channels, p.Agents[job.Agent].Channels)
		t.job, t.detail, t.notify = job, job.triggeredBy(d), job.Notify
		t.notify.Channels = t.told
	} else if d.Skill != "" {
		if t.job.Skill = p.Modules[d.Skill]; t.job.Skill == nil {
			return t, cmp.Or[error](damaged, &notConfiguredError{"skill", d.Skill})
		}
	}
	if run.Job == "" && (run.Trigger == domain.TriggerSelf || d.By != nil) { // nobody waits for it
		t.notify = wakeNotify(t.origin, t.told)
	}

	if t.job.Skill != nil {
		t.settings = p.ModuleSettings[t.job.Skill.Name]
	}

	a, ok := p.Agents[t.job.Agent]
	if !ok {
		return t, cmp.Or[error](damaged, &notConfiguredError{"agent", t.job.Agent})
	}

	t.agent, t.model = a, a.Model
	if t.job.Executor == nil && t.job.Prompts() {
		t.job.Executor = a.Executor
	}
	switch {
	case t.job.Model != nil:
		t.model = t.job.Model
	case t.origin != nil && t.origin.Model != nil:
		t.model = t.origin.Model
	}

	t.models = modelChain(t.model)
	return t, damaged
}

// parseDetail reads what triggered a run; nothing, where the record of it is damaged.
func parseDetail(run ledger.Run) (ledger.Detail, error) {
	var d ledger.Detail
	if len(run.Detail) == 0 {
		return d, nil
	}
	if err := json.Unmarshal(run.Detail, &d); err != nil {
		return ledger.Detail{}, fmt.Errorf("the record of what triggered run %d is damaged: %w", run.ID, err)
	}
	return d, nil
}

// originJob returns the job that began the chain of a run without a job, or nil.
func (p *Plan) originJob(run ledger.Run, d ledger.Detail) *Job {
	if run.Job != "" {
		return nil
	}

	job, ok := p.Jobs[d.Chain()]
	if !ok || job.Agent != run.Agent {
		return nil
	}
	return &job
}

// wakeNotify returns who is told of a wake: as of the job that began its chain, or else of
// failures. The job's title is left out, because it is about other work.
func wakeNotify(origin *Job, told []string) Notify {
	if origin != nil {
		n := origin.Notify
		n.Title, n.Channels = "", told
		return n
	}

	return Notify{On: []string{domain.Failure, string(domain.StateWaiting)}, Channels: told}
}

// governingJob returns the job whose bounds, budget and confinement apply: of a wake, the job that
// began its chain.
func (t *task) governingJob() Job {
	if t.origin != nil {
		return *t.origin
	}
	return t.job
}

func (t *task) asker() string { return cmp.Or(t.job.Name, t.agent.Name) }

// minTier is the weakest confinement that the programs of the run may have, "" for the rule.
func (t *task) minTier() string {
	least := cmp.Or(t.governingJob().MinTier, t.agent.MinTier)
	if least == "" && t.agent.Unconfined != "" {
		return "D"
	}
	if t.agent.Mode == ModeIsolated && least > "B" { // a job may not loosen what its agent's mode promises
		return "B"
	}
	return least
}

func (t *task) needsModel() bool {
	return t.detail.Tool == "" && t.job.Prompts() && !t.executes()
}

// asksModel says whether the run cannot go on without a language model.
func (t *task) asksModel() bool {
	return t.detail.Tool == "" && t.job.AsksModel() || !t.executes() && t.callsAskingModule()
}

// makeWorkdir creates the agent's workdir and the folders of grants.write in it. A name with an
// extension counts as a file.
func (t *task) makeWorkdir() error {
	folders := []string{t.agent.Workdir}
	for _, path := range t.agent.Write {
		if _, err := t.plan.Boundary.Stat(path); errors.Is(err, fs.ErrNotExist) && fspath.Within(path, t.agent.Workdir) && filepath.Ext(path) == "" {
			folders = append(folders, path)
		}
	}

	for _, folder := range folders {
		dir, err := t.plan.Boundary.MakeRoot(folder, owner.Usual(0o755))
		if err != nil {
			return err
		}
		if err := dir.Close(); err != nil {
			return err
		}
	}
	return nil
}

// phased says whether the run goes in phases: a fixed list of calls never does.
func (t *task) phased() bool { return t.agent.Phased && t.needsModel() }
