package agent

import (
	"context"

	"rouse/agent/loop"
	"rouse/agent/loop/memory"
	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/agent/tool/skill"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// loopOptions are what the loop is given for a task and its snapshot. With over the attempt has
// ended before it began.
func (r *Runner) loopOptions(ctx context.Context, run ledger.Run, a ledger.Attempt, t *task, s snapshot) (o loop.Options, over *ledger.Result, err error) {
	t.board, t.reducer, t.authorizer = &memory.Board{}, newReducer(*t), r.newAuthorizer(run, a, *t)
	past, err := r.past(ctx, run, a)
	if err != nil {
		return o, nil, err
	}

	t.authorizer.madeCalls, t.answered = past.madeCalls, past.answered
	if err := past.dropUndone(s); err != nil {
		return o, nil, err
	}

	t.loaded, t.loadedTools = loadedSkills(*t, s, past), skill.ToolsLoadedIn(past.messages)
	data := s.templateData(a, *t)
	if over, err = r.openModule(ctx, run, a, t, data); over != nil || err != nil {
		return o, over, err
	}

	recorder := newRecorder(r.ledger.Record, a, t.redactor(), t.needsModel())
	if r.homes != nil {
		recorder.settle = func(ctx context.Context) error { return r.homes.Settle(ctx, t.agent.Name) }
	}
	t.recorder = recorder
	if t.executes() {
		if t.program, over, err = r.openProgram(ctx, run, a, *t, past, recorder); over != nil || err != nil {
			return o, over, err
		}
	}
	t.offers = r.offersOf(*t, s.Registered)
	t.calls = r.newModuleCalls(run, *t, past, recorder)
	r.useServers(run, t, s.Servers) //nolint:contextcheck // what a server asked for is put on record also when its run ends

	registry, err := r.tools(t, a)
	if err != nil {
		res := failed(domain.OutcomeError, "the tools of agent %s cannot be set up: %v", t.agent.Name, err)
		return o, &res, nil
	}

	o = loop.Options{
		Registry: registry, Bounds: bounds(*t),
		Recorder:   recorder,
		Invocation: tool.Invocation{Run: run.ID, Attempt: a.Number, Job: run.Job, Agent: t.agent.Name, MustSucceed: t.job.Playbook != nil || t.detail.Check}, Board: t.board,
		Reducer: t.reducer, Authorizer: t.authorizer,
	}
	// The tools of the job's next run are the same, and it is expected as far off as the last one was.
	o.KeepTools = !s.LastRun.IsZero() && model.WorthKeeping(run.StartedAt.Sub(s.LastRun))
	if t.relay != nil {
		o.LearnContext = func(tokens int) { t.relay.model().LearnContext(tokens) }
	}
	t.calls.begin(&o)
	if t.needsModel() {
		t.project, t.clock = s.project(*t), s.Clock
		o.Now = (&resultClock{zone: t.clockZone(), told: run.StartedAt}).now
	}

	// Before the model or playbook is set up: a run that waits for its owner needs neither.
	if res, parked, err := r.recover(ctx, a, *t, past); parked || err != nil {
		return o, &res, err
	}

	if t.executes() {
		err = r.setProgram(ctx, &o, *t, s, data, past)
	} else {
		err = r.setProvider(ctx, &o, *t, data, past)
	}
	if err != nil {
		res := failed(domain.OutcomeError, "%s", err.Error())
		return o, &res, nil
	}

	if err := t.authorizer.admitPrompt(ctx, *t, s); err != nil {
		return o, nil, err
	}

	o.Policy.StopOnRejection = o.Policy.StopOnRejection || t.agent.OnDenied == tool.OnDeniedFail
	if t.asksModel() {
		o.Bounds = o.Bounds.AfterCost(past.used.cost)
		o.Budget = r.newBudget(run, a, t, o.Bounds, !past.began)
	}

	if t.needsModel() {
		s.tell(&o)
	}

	return o, nil, nil
}

// bounds are the job's where it gives any, else the agent's. A wake stays within those of
// the job that its chain goes back to, so that no job sets anything going that is larger
// than itself.
func bounds(t task) loop.Bounds {
	b := overrideBounds(t.agent.Bounds, t.governingJob().Bounds)
	if t.detail.Chat && (b.Steps == 0 || t.agent.DefaultSteps) { // a bound set by the owner is kept
		b.Steps = loop.ChatSteps
	}
	if t.origin != nil {
		return t.agent.Bounds.Within(b)
	}
	return b
}

// overrideBounds is b with what j gives.
func overrideBounds(b, j loop.Bounds) loop.Bounds {
	if j.Steps != 0 {
		b.Steps = j.Steps
	}

	if j.Calls != 0 {
		b.Calls = j.Calls
	}

	if j.Wall != 0 {
		b.Wall = j.Wall
	}

	if j.Idle != 0 {
		b.Idle = j.Idle
	}

	if j.Tokens != 0 {
		b.Tokens = j.Tokens
	}

	if j.CostMicroUSD != 0 {
		b.CostMicroUSD = j.CostMicroUSD
	}

	if j.Output != 0 {
		b.Output = j.Output
	}

	return b
}
