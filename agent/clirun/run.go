// Package clirun executes a run with an installed agent program, such as Claude Code. The program
// is one call of the run, and its cost counts for the daily and monthly budgets.
package clirun

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/spend"
	"rouse/agent/tool"
	"rouse/agent/tool/executor"
	"rouse/agent/tool/shell"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
)

// Run is an attempt that an agent program executes.
type Run struct {
	t        *plan.Attempt
	ledger   *ledger.Ledger
	recorder loop.Recorder
	settings executor.Settings
	located  executor.Located
	bounds   loop.Bounds // rest of the run's bounds
	budget   *spend.Budget
	reserved int64 // ID of the reservation; 0 without a reservation
	usual    int64 // median cost of the job's earlier runs, in micro-USD
	key      string

	step, said int // number of the current step within the call, and of calls within that step
	ended      *executor.Result
	spent      executor.Spent
}

// New returns a Run. It returns an early end if the program cannot be started. left holds the rest
// of the run's bounds.
func New(ctx context.Context, l *ledger.Ledger, t *plan.Attempt, rec loop.Recorder, b *spend.Budget, left loop.Bounds) (*Run, error) {
	located, err := t.LocateExecutor()
	if err != nil {
		return nil, plan.EndEarly(domain.OutcomeError, "the executor of %s cannot be started: %v", t.Asker(), err)
	}
	usual, err := usualCost(ctx, l, t.Run.Job)
	if err != nil {
		return nil, err
	}
	return &Run{t: t, ledger: l, recorder: rec, usual: usual, settings: *t.Job.Executor, located: located, step: 1, bounds: left, budget: b}, nil
}

// Provider returns the provider that starts the program with a prompt. items are the inbox items of
// the run. continues is the number of the first attempt that this attempt continues.
func (p *Run) Provider(items []inbox.Item, continues int, prompt string) (model.Provider, error) {
	p.key = programKey(continues, len(Questions(items, continues)))
	args, err := json.Marshal(executor.Args{Program: commandLine(p.settings.Argv), Prompt: prompt})
	return provider{p, args}, err
}

const costHistory = 20

// usualCost returns the median cost of the job's recent runs that reported a cost, or 0.
func usualCost(ctx context.Context, l *ledger.Ledger, job string) (int64, error) {
	if job == "" {
		return 0, nil
	}
	last, err := l.Runs.LastUsages(ctx, job, costHistory)
	if err != nil {
		return 0, err
	}

	var reported []int64
	for _, u := range last {
		if u.CostMicroUSD > 0 && u.EstimatedMicroUSD == 0 {
			reported = append(reported, u.CostMicroUSD)
		}
	}
	if len(reported) == 0 {
		return 0, nil
	}
	slices.Sort(reported)
	return reported[len(reported)/2], nil
}

// Tools returns the tool that starts the program. before is the folder for copies of files that the
// program may change.
func (p *Run) Tools(launcher *shell.Launcher, before string) ([]tool.Tool, error) {
	return executor.Tools(executor.Options{
		Settings: p.settings, Located: p.located, Launcher: launcher, Log: p.ledger.FileOps, Before: before, Money: p, UsualMicroUSD: p.usual, Listener: p, Redact: p.t.Redactor().Replace,
		Bounds: executor.Bounds{Turns: p.bounds.Steps, Calls: p.bounds.Calls, Tokens: p.bounds.Tokens, CostMicroUSD: p.bounds.CostMicroUSD, Output: p.bounds.Output, Idle: p.bounds.Idle},
		Expand: p.argv,
		Ended:  func(res executor.Result) { p.ended, p.spent = &res, res.Spent },
	})
}

// ArgvNames returns the variables in the templates of executor.argv.
func ArgvNames() []string {
	return []string{"Prompt", "Job", "Agent", "Run", "Workdir", "MaxTurns", "MaxCostUSD"}
}

// argv expands the templates of the command line. They can use only values of the host, because an
// untrusted value could be taken for an option.
func (p *Run) argv(prompt string) ([]string, error) {
	data := map[string]any{"Prompt": prompt, "Job": p.t.Run.Job, "Agent": p.t.Agent.Name, "Run": fmt.Sprint(p.t.Run.ID), "Workdir": p.t.Agent.Workdir}
	if p.bounds.Steps > 0 {
		data["MaxTurns"] = p.bounds.Steps
	}
	if c := p.bounds.CostMicroUSD; c > 0 {
		data["MaxCostUSD"] = fmt.Sprintf("%.6g", float64(c)/1e6)
	}

	out := make([]string, len(p.settings.Argv))
	for i, word := range p.settings.Argv {
		var err error
		if out[i], err = playbook.Expand("executor.argv", word, data); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// commandLine returns a command line as a JSON list, so that each argument is visible.
func commandLine(argv []string) string {
	raw, err := json.Marshal(argv)
	if err != nil { // a list of strings can always be encoded
		return ""
	}
	return string(raw)
}

// programKey returns the key of the call that starts the program. It changes after a failed attempt
// and after an answered question, but not after an interruption.
func programKey(continues, answered int) string {
	return fmt.Sprintf("p%d.%d", max(continues, 1), answered+1)
}

// Questions returns the closed questions of a run's program since an attempt.
func Questions(items []inbox.Item, from int) (out []inbox.Item) {
	for _, i := range items {
		if i.Kind == inbox.KindInput && i.State != inbox.ItemOpen && i.Attempt >= from {
			out = append(out, i)
		}
	}
	return out
}

// provider makes the call that starts the program, and ends the run with its result.
type provider struct {
	*Run
	args json.RawMessage
}

// Stream implements model.Provider.
func (p provider) Stream(_ context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if len(r.Results) == 0 {
			yield(model.Event{Call: &model.Call{ID: p.key, Key: p.key, Name: executor.Name(), Args: p.args}}, nil)
			return
		}
		end := p.end(r.Results[0].Envelope)
		yield(model.Event{End: &end}, nil)
	}
}

func (p *Run) end(envelope json.RawMessage) model.End {
	var e struct {
		OK            bool
		Kind, Message string
		Result        *executor.Result
		Warnings      []string
	}
	switch err := json.Unmarshal(envelope, &e); {
	case err != nil:
		return model.End{Outcome: domain.OutcomeError, Error: "the recorded result of the program is damaged: " + err.Error()}
	case e.Result == nil && e.OK: // the owner has confirmed that the program had done its work
		return model.End{Outcome: domain.OutcomeSuccess, Summary: "the program was cut off; its owner says that it had done its work"}
	case e.Result == nil:
		return model.End{Outcome: domain.OutcomeError, Error: e.Message}
	}

	if p.ended == nil {
		p.ended = e.Result
	}
	return model.End{Outcome: e.Result.Outcome, Summary: e.Result.Answer, Error: e.Result.Error}
}

// Finish adds the program's own report to the result of the attempt. The report is not verified.
func (p *Run) Finish(res *loop.Result) {
	if p == nil {
		return
	}
	res.Verified = false
	res.Spent = spentOf(p.spent)
	if e := p.ended; e != nil && e.Reported && res.Outcome == domain.OutcomeTimeout { // it hung after its final result
		res.Outcome, res.Summary, res.Error = e.Outcome, e.Answer, e.Error
	}
	if p.ended != nil {
		res.Steps, res.Calls = max(p.ended.Turns, 1), res.Calls+p.ended.Calls
	}
}

// Outage returns the result of a program that could not reach its model, made no calls and changed
// no files. It returns nil for any other program.
func (p *Run) Outage(res loop.Result) *executor.Result {
	e := p.ended
	if e == nil || !e.Unavailable || e.Calls > 0 || e.FilesChanged > 0 || res.Outcome != domain.OutcomeError {
		return nil
	}
	return e
}

// Reserve implements executor.Money. Without a limit it reserves the minimum, so the program starts
// if the budget has anything left.
func (p *Run) Reserve(ctx context.Context) (refusal, err error) {
	most := ledger.Usage{TokensIn: max(p.bounds.Tokens, 1), CostMicroUSD: max(p.bounds.CostMicroUSD, 1)}
	id, err := p.budget.ReserveUsage(ctx, 1, most)
	if _, over := err.(*spend.ExceededError); over { //nolint:errorlint // the error is not wrapped
		return err, nil
	}
	p.reserved = id
	return nil, err
}

func spentOf(s executor.Spent) loop.Spent {
	return loop.Spent{Usage: s.Usage, CostMicroUSD: s.CostMicroUSD, EstimatedTokens: s.EstimatedTokens, EstimatedMicroUSD: s.EstimatedMicroUSD}
}

// Settle implements executor.Money.
func (p *Run) Settle(ctx context.Context, s executor.Spent) error {
	why := s.Why
	if why != "" {
		why = fmt.Sprintf("run %d of %s: %s", p.t.Run.ID, p.t.Asker(), why)
	}
	return p.budget.SettleUsage(ctx, p.reserved, spentOf(s), why)
}

// Turn implements executor.Listener. It records an answer of the program's model as a step within
// the call.
func (p *Run) Turn(ctx context.Context, t executor.Turn) error {
	ctx = context.WithoutCancel(ctx)
	p.step, p.said = p.step+1, 0
	speaker := filepath.Base(p.settings.Argv[0]) + ", as it says"
	if t.Model != "" {
		speaker += ": " + t.Model
	}
	now := time.Now()
	s := loop.Step{Number: p.step, ParentCall: p.key, Text: t.Text, Model: speaker, StartedAt: now, FinishedAt: now}
	if err := p.recorder.StartStep(ctx, s); err != nil {
		return err
	}
	return p.recorder.FinishStep(ctx, s)
}

// Call implements executor.Listener. It records a call that the program reports.
func (p *Run) Call(ctx context.Context, c executor.Call) error {
	args, err := json.Marshal(executor.SaidArgs{Tool: c.Tool, Input: c.Args})
	if err != nil {
		return err
	}

	e, state := tool.Success(c.Result), domain.CallDone
	if c.Failed {
		e, state = tool.Failure(tool.KindExecutionError, "%s", c.Result), domain.CallFailed
	}
	envelope, err := e.MarshalJSON()
	if err != nil {
		return err
	}

	now := time.Now()
	p.said++
	return p.recorder.AnswerCall(context.WithoutCancel(ctx), loop.Call{
		Step: p.step, Index: p.said, ID: fmt.Sprintf("%s-%d-%d", p.key, p.step, p.said), Key: loop.InnerKey(p.key, fmt.Sprintf("said-%d.%d", p.step, p.said)), Tool: executor.SaidName(),
		Args: args, Effect: domain.EffectExternal, State: state, Envelope: envelope, StartedAt: now, FinishedAt: now,
	})
}
