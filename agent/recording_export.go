package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/replay"
	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// ExportRecording returns everything that is kept of a finished run, to be replayed.
func (r *Runner) ExportRecording(ctx context.Context, id int64) (replay.Recording, error) {
	run, err := r.ledger.Run(ctx, id)
	if err != nil {
		return replay.Recording{}, err
	}
	if run.State != domain.StateFinished {
		return replay.Recording{}, fmt.Errorf("run %d has not finished (%s); wait for its end, or cancel it", id, run.State)
	}

	redact := redactor(r.plan.Load().Secrets)
	out := replay.Recording{Run: &replay.Run{
		ID: fmt.Sprint(run.ID), Job: run.Job, Agent: run.Agent, Trigger: run.Trigger, Detail: cleanRaw(run.Detail, redact),
		ScheduledAt: run.ScheduledAt, QueuedAt: run.QueuedAt, StartedAt: run.StartedAt, FinishedAt: run.FinishedAt,
		Outcome: run.Outcome, Exit: run.Exit, Summary: redact.Replace(run.Summary), Error: redact.Replace(run.Error), Verified: run.Verified,
		Steps: run.Steps, Calls: run.Calls, CostMicroUSD: run.Usage.CostMicroUSD, Usage: usageOf(run.Usage),
	}}
	if err := r.exportSteps(ctx, id, &out); err != nil {
		return out, err
	}
	if len(out.Steps) == 0 {
		return out, fmt.Errorf("run %d did nothing that could be played again (%s: %s)", id, run.Outcome, cmp.Or(run.Error, "no step was taken"))
	}

	return out, r.exportAttempts(ctx, run, &out)
}

func usageOf(u ledger.Usage) *model.Usage {
	return &model.Usage{Input: u.TokensIn, Output: u.TokensOut, Cached: u.TokensCached}
}

func (r *Runner) exportSteps(ctx context.Context, id int64, out *replay.Recording) error {
	steps, err := r.ledger.Steps(ctx, id)
	if err != nil {
		return err
	}

	calls, err := r.ledger.Calls(ctx, id)
	if err != nil {
		return err
	}

	within := r.withinCalls(steps, calls)
	for _, s := range steps {
		if _, ok := within[place{s.Attempt, outermost(s.ParentCall)}]; ok {
			continue
		}
		out.Steps = append(out.Steps, replay.Step{Attempt: s.Attempt, Number: s.Number, Text: s.Text, Notices: s.Notices, Usage: usageOf(s.Usage),
			CostMicroUSD: s.Usage.CostMicroUSD, Unfinished: s.FinishedAt.IsZero()})
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

// outermost is the key of the run's own call that something was done within, "" of what was not.
func outermost(key string) string {
	outer, _ := loop.OuterKey(key)
	return outer
}

// withinCalls is what modules did within calls of the run. What is done within a reduction is the run's own.
func (r *Runner) withinCalls(steps []ledger.Step, calls []ledger.Call) map[place]*replay.Within {
	out := map[place]*replay.Within{}
	specs := r.Specs()
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
		if _, asked := loop.OuterKey(s.ParentCall); asked { // a turn of the module itself stands in the call
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

func (r *Runner) exportAttempts(ctx context.Context, run ledger.Run, out *replay.Recording) error {
	attempts, err := r.ledger.Attempts(ctx, run.ID)
	if err != nil {
		return err
	}

	items, err := r.ledger.ItemsOf(ctx, run.ID)
	if err != nil {
		return err
	}

	var snapshot json.RawMessage
	for _, a := range attempts {
		kept, err := r.readRecording(ctx, a)
		if err != nil {
			return err
		}

		for _, k := range kept.Attempts {
			snapshot = k.Snapshot
		}

		if snapshot == nil {
			if snapshot, err = r.snapshotAsOf(ctx, run); err != nil {
				return err
			}
		}

		at := replay.Attempt{Number: a.Number, State: a.State, Error: a.Error, Snapshot: snapshot}
		for _, i := range items {
			if i.Attempt == a.Number && i.Kind != ledger.KindInfo {
				at.Questions = append(at.Questions, replay.Question{Kind: heardKind(i), State: i.State, Answer: i.Answer})
			}
		}

		out.Attempts, out.Exchanges = append(out.Attempts, at), append(out.Exchanges, kept.Exchanges...)
	}

	return nil
}

// heardKind is what an item asked an approval for, "" when it asked something else.
func heardKind(i ledger.Item) string {
	switch {
	case i.Kind != ledger.KindApproval:
		return ""
	case i.Action.Tool == "":
		return replay.QuestionDefinition
	}
	return replay.QuestionApproval
}

func (r *Runner) snapshotAsOf(ctx context.Context, run ledger.Run) (json.RawMessage, error) {
	d, err := plan.ParseDetail(run)
	if err != nil {
		return nil, err
	}

	s := snapshot{File: d.File}
	if s.LastSuccess, s.LastRun, err = r.timesAsOf(ctx, run); err != nil {
		return nil, err
	}

	if len(d.Files) > 0 {
		// What it began without is known from the second attempt on.
		left, _, err := r.droppedBefore(ctx, newAttempt(&plan.Task{Run: run}, ledger.Attempt{Run: run.ID, Number: run.Attempt + 1}))
		if err != nil {
			return nil, err
		}

		s.Manifest = r.manifestPath(run.ID)
		for _, f := range d.Files {
			if !left[f.Path] {
				s.Files = append(s.Files, snapshotFile{File: f})
			}
		}
	}

	return json.Marshal(s)
}

// timesAsOf are times as they were when a run began.
func (r *Runner) timesAsOf(ctx context.Context, run ledger.Run) (lastSuccess, lastRun time.Time, err error) {
	if run.Job == "" {
		return lastSuccess, lastRun, nil
	}
	for f := (ledger.RunFilter{Job: run.Job, State: domain.StateFinished, Before: run.ID}); ; {
		earlier, err := r.ledger.Runs(ctx, f)
		if err != nil || len(earlier) == 0 {
			return lastSuccess, lastRun, err
		}

		for _, e := range earlier {
			f.Before = e.ID
			switch {
			case e.Outcome == domain.OutcomeSkipped || e.FinishedAt.After(run.StartedAt):
				continue
			case lastRun.IsZero():
				lastRun = e.FinishedAt
			}

			if e.Outcome == domain.OutcomeSuccess {
				return e.StartedAt, lastRun, nil
			}
		}
	}
}
