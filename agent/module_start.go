package agent

import (
	"context"
	"encoding/json"
	"fmt"

	"rouse/agent/tool"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
	"rouse/skills"
)

// maxStarted is how many runs one attempt may start by calling skills.
const maxStarted = 10

type startedRun struct {
	Run   string       `json:"run"`
	Skill string       `json:"skill"`
	State domain.State `json:"state"`
}

// start queues the run of a skill that goes on by itself: of the same agent, with what that is granted, with the labels of this run,
// and within the bounds and the budget of the job that this run goes back to. A call that is made again finds the run that it started.
func (c *moduleCalls) start(ctx context.Context, in tool.Invocation, s *skills.Skill, args json.RawMessage) (tool.Envelope, error) {
	if c.task.detail.By != nil {
		return tool.Failure(tool.KindRejected, "another run started this one, which therefore starts none"), nil
	}
	c.mu.Lock()
	c.started++
	many := c.started > maxStarted
	c.mu.Unlock()
	if many {
		return tool.Failure(tool.KindRejected, "a run starts %d others at most", maxStarted), nil
	}

	workspace, refused, err := c.workspaceFor(ctx, s)
	if refused != nil || err != nil {
		return refusal(refused), err
	}
	by := &ledger.StarterDetail{Run: c.task.run.ID, Job: c.task.governingJob().Name}
	accepted, err := c.runner.ledger.Enqueue(ctx, ledger.Request{
		Key:   fmt.Sprintf("skill/%s/%d/%s", c.runner.ledger.EpochOf(c.task.run.ID).ID, c.task.run.ID, in.Key),
		Agent: c.task.run.Agent, Trigger: domain.TriggerAPI, Detail: ledger.Detail{Skill: s.Name, Given: args, Workspace: workspace, By: by},
	})
	if err != nil {
		return tool.Envelope{}, err
	}

	run, err := c.runner.ledger.Run(ctx, accepted[0].Run)
	if err != nil {
		return tool.Envelope{}, err
	}
	return tool.Success(startedRun{fmt.Sprint(run.ID), s.Name, run.State}), nil
}
