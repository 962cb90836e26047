package record

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/replay"
	"rouse/agent/redact"
	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/steps"
)

// Source holds additional inputs of an export.
type Source struct {
	Specs  tool.Specs // specs of all tools
	Redact *redact.Redactor
	// Snapshot returns the JSON of a run's initial state. It is used for runs without a recording.
	Snapshot func(ctx context.Context, run ledger.Run) (json.RawMessage, error)
}

// Export returns all data of a finished run that a replay needs.
func (s *Store) Export(ctx context.Context, id int64, from Source) (replay.Recording, error) {
	run, err := s.ledger.Runs.Get(ctx, id)
	if err != nil {
		return replay.Recording{}, err
	}
	if run.State != domain.StateFinished {
		return replay.Recording{}, fmt.Errorf("run %d has not finished (%s); wait for its end, or cancel it", id, run.State)
	}

	redact := from.Redact
	out := replay.Recording{Run: &replay.Run{
		ID: fmt.Sprint(run.ID), Job: run.Job, Agent: run.Agent, Trigger: run.Trigger, Detail: redact.Document(run.Detail),
		ScheduledAt: run.ScheduledAt, QueuedAt: run.QueuedAt, StartedAt: run.StartedAt, FinishedAt: run.FinishedAt,
		Outcome: run.Outcome, Exit: run.Exit, Summary: redact.Replace(run.Summary), Error: redact.Replace(run.Error), Verified: run.Verified,
		Steps: run.Steps, Calls: run.Calls, CostMicroUSD: run.Usage.CostMicroUSD, Usage: usageOf(run.Usage),
	}}
	if err := s.exportSteps(ctx, id, from.Specs, &out); err != nil {
		return out, err
	}
	if len(out.Steps) == 0 {
		return out, fmt.Errorf("run %d did nothing that could be played again (%s: %s)", id, run.Outcome, cmp.Or(run.Error, "no step was taken"))
	}

	return out, s.exportAttempts(ctx, run, from.Snapshot, &out)
}

func usageOf(u ledger.Usage) *model.Usage {
	return &model.Usage{Input: u.TokensIn, Output: u.TokensOut, Cached: u.TokensCached}
}

func (s *Store) exportSteps(ctx context.Context, id int64, specs tool.Specs, out *replay.Recording) error {
	steps, err := s.ledger.Steps.List(ctx, id)
	if err != nil {
		return err
	}

	calls, err := s.ledger.Steps.Calls(ctx, id)
	if err != nil {
		return err
	}

	within := withinCalls(steps, calls, specs)
	for _, step := range steps {
		if _, ok := within[place{step.Attempt, outermost(step.ParentCall)}]; ok {
			continue
		}
		out.Steps = append(out.Steps, replay.Step{Attempt: step.Attempt, Number: step.Number, Text: step.Text, Notices: step.Notices, Usage: usageOf(step.Usage),
			CostMicroUSD: step.Usage.CostMicroUSD, Unfinished: step.FinishedAt.IsZero()})
	}

	for _, c := range calls {
		if _, inner := loop.OuterKey(c.Key); inner {
			continue
		}
		out.Calls = append(out.Calls, replay.Call{Attempt: c.Attempt, Step: c.Step, Index: c.Index, Key: c.Key, Tool: c.Tool, Args: c.Args, State: c.State, Envelope: c.Envelope, TookMS: loop.RecordedDuration(c.StartedAt, c.FinishedAt).Milliseconds(),
			Within: within[place{c.Attempt, c.Key}]})
	}

	return nil
}

type place struct {
	attempt int
	key     string
}

// outermost returns the key of the run's own call that contains a call, or "".
func outermost(key string) string {
	outer, _ := loop.OuterKey(key)
	return outer
}

// withinCalls returns the totals of the modules' actions within calls of the run. A reduction
// counts as the run's own.
func withinCalls(steps []steps.Step, calls []ledger.Call, specs tool.Specs) map[place]*replay.Within {
	out := map[place]*replay.Within{}
	for _, c := range calls {
		if specs.Find(c.Tool).Requires == tool.RequiresOffer {
			out[place{c.Attempt, c.Key}] = &replay.Within{}
		}
	}

	for _, s := range steps {
		w, ok := out[place{s.Attempt, outermost(s.ParentCall)}]
		if !ok {
			continue
		}
		w.Turns++
		if _, asked := loop.OuterKey(s.ParentCall); asked { // a turn of the module itself is in the call
			w.Steps++
			if w.Usage == nil {
				w.Usage = &model.Usage{}
			}
			*w.Usage = w.Usage.Add(*usageOf(s.Usage))
			w.CostMicroUSD += s.Usage.CostMicroUSD
		}
	}

	for _, c := range calls {
		outer, inner := loop.OuterKey(c.Key)
		if w, ok := out[place{c.Attempt, outer}]; ok && inner && c.State != domain.CallReplayed {
			w.Calls++
		}
	}
	return out
}

func (s *Store) exportAttempts(ctx context.Context, run ledger.Run, snapshotOf func(context.Context, ledger.Run) (json.RawMessage, error), out *replay.Recording) error {
	attempts, err := s.ledger.Runs.Attempts(ctx, run.ID)
	if err != nil {
		return err
	}

	items, err := s.ledger.Inbox.OfRun(ctx, run.ID)
	if err != nil {
		return err
	}

	var snapshot json.RawMessage
	for _, a := range attempts {
		kept, err := s.read(ctx, a)
		if err != nil {
			return err
		}

		for _, k := range kept.Attempts {
			snapshot = k.Snapshot
		}

		if snapshot == nil {
			if snapshot, err = snapshotOf(ctx, run); err != nil {
				return err
			}
		}

		at := replay.Attempt{Number: a.Number, State: a.State, Error: a.Error, Snapshot: snapshot}
		for _, i := range items {
			if i.Attempt == a.Number && i.Kind != inbox.KindInfo {
				at.Questions = append(at.Questions, replay.Question{Kind: questionKind(i), State: i.State, Answer: i.Answer})
			}
		}

		out.Attempts, out.Exchanges = append(out.Attempts, at), append(out.Exchanges, kept.Exchanges...)
	}

	return nil
}

// questionKind returns the kind of approval that an item requested, or "" for other items.
func questionKind(i inbox.Item) string {
	switch {
	case i.Kind != inbox.KindApproval:
		return ""
	case i.Action.Tool == "":
		return replay.QuestionDefinition
	}
	return replay.QuestionApproval
}
