package agent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"rouse/agent/loop"
	"rouse/agent/loop/memory"
	"rouse/agent/tool"
	"rouse/agent/tool/skill"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
	"time"
)

// task is one run's orders: the agent, and the job or what stands in its place.
type task struct {
	budget         Budget // of everybody
	agent          Agent
	job            Job
	origin         *Job // of a wake: the job at the beginning of its chain, nil when there is none
	detail         ledger.Detail
	files          []batchFile // of a batch
	manifest       string      // where they are listed
	model          *Model
	relay          *relay // to the model and its fallbacks; nil without one
	channels       []string
	secrets        []string
	zone           *time.Location
	board          *memory.Board             // the todo list, and the plan
	baseDir        string                    // where relative paths begin, if not in the workdir
	wrapTool       func(tool.Tool) tool.Tool // what becomes of a tool whose calls are not made; nil: they are
	reducer        *loop.Reducer             // of a model
	loaded         *skill.Loaded             // skills that the model has in its context
	watchedFolders []string                  // folders in which strangers leave files
	masks          tool.Masks
	authorizer     *authorizer
}

// find resolves what a run asks for. The error is for the run's owner.
func (p Plan) find(run ledger.Run, d ledger.Detail) (task, error) {
	t := task{detail: d, channels: p.Channels, secrets: p.Secrets, zone: p.Zone, watchedFolders: p.watchedFolders, masks: p.Masks, budget: p.Budget, origin: p.originJob(run, d), job: Job{Name: run.Job, Agent: run.Agent, Prompt: d.Prompt}}
	if run.Job != "" {
		job, ok := p.Jobs[run.Job]
		if !ok {
			return t, fmt.Errorf("the job %q is no longer in the configuration, or is disabled", run.Job)
		}
		t.job, t.detail = job, job.asBatch(d)
	}

	a, ok := p.Agents[t.job.Agent]
	if !ok {
		return t, fmt.Errorf("the agent %q is no longer in the configuration, or is disabled", t.job.Agent)
	}

	t.agent = a
	t.model = a.Model
	switch {
	case t.job.Model != nil:
		t.model = t.job.Model
	case t.origin != nil && t.origin.Model != nil:
		t.model = t.origin.Model
	}

	if t.model != nil {
		t.relay = newRelay(t.model)
	}

	return t, nil
}

// minTier is the weakest confinement that the programs of the run may have, "" for the rule. A
// wake has that of the job that its chain goes back to.
func (t task) minTier() string {
	job := t.job.MinTier
	if t.origin != nil {
		job = t.origin.MinTier
	}

	least := cmp.Or(job, t.agent.MinTier)
	if least == "" && t.agent.Unconfined != "" {
		return "D"
	}
	return least
}

// needsModel says whether the run cannot go on without a language model.
func (t task) needsModel() bool { return t.detail.Tool == "" && t.job.Playbook == nil }

// phased says whether the run goes in phases: a fixed list of calls never does.
func (t task) phased() bool { return t.agent.Phased && t.needsModel() }

func parseDetail(run ledger.Run) (ledger.Detail, error) {
	var d ledger.Detail
	if len(run.Detail) == 0 {
		return d, nil
	}
	if err := json.Unmarshal(run.Detail, &d); err != nil {
		return d, fmt.Errorf("the record of what triggered run %d is damaged: %w", run.ID, err)
	}
	return d, nil
}

// originJob is the job at the beginning of a wake's chain, nil when it is no longer configured
// for the same agent.
func (p Plan) originJob(run ledger.Run, d ledger.Detail) *Job {
	if d.Wake == nil || run.Job != "" {
		return nil
	}

	job, ok := p.Jobs[d.Wake.Job]
	if !ok || job.Agent != run.Agent {
		return nil
	}
	return &job
}

// ofWake stands for the job in notices of a wake: it is told of as the job is that its chain
// goes back to, and without one its failures are told. Titles name the agent: the job's own
// would speak of work that this run did not do.
func (p Plan) ofWake(begun *Job) Job {
	if begun != nil {
		job := Job{Name: begun.Name, Notify: begun.Notify}
		job.Notify.Title = ""
		return job
	}
	on := []string{string(domain.OutcomeError), string(domain.OutcomeTimeout), string(domain.OutcomeBudget), string(domain.OutcomeInterrupted), string(domain.StateWaiting)}
	return Job{Notify: Notify{On: on, Channels: p.Channels[:min(1, len(p.Channels))]}}
}
