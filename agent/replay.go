package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"rouse/agent/condition"
	"rouse/agent/loop"
	"rouse/agent/model/replay"
	"rouse/agent/plan"
	"rouse/agent/record"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/runs"
)

// startRecording starts recording the exchanges of an attempt with its model, if its job sets
// record. The caller must call end.
func (r *Runner) startRecording(ctx context.Context, o *loop.Options, t *attempt) (end func()) {
	if !t.GoverningJob().Record || !t.NeedsModel() {
		return func() {}
	}
	return r.recordings.Start(ctx, o, t.Agent.Name, t.Try, t.found, t.Redactor(), func() string { return t.relay.Model().Name })
}

// ExportRecording returns the recording of a finished run for a replay.
func (r *Runner) ExportRecording(ctx context.Context, id int64) (replay.Recording, error) {
	return r.recordings.Export(ctx, id, record.Source{Specs: r.Specs(), Redact: redactor(r.Plan.Load().Secrets), Snapshot: r.snapshotAsOf})
}

// Replay executes a recorded run again with the current plan. Recorded answers replace the model,
// and recorded results replace all tools. It writes to the runner's ledger and folders, which must
// be temporary.
func (r *Runner) Replay(ctx context.Context, rec replay.Recording) (record.Result, error) {
	run, t, err := recordedTask(r.Plan, rec)
	if err != nil {
		return record.Result{}, err
	}
	ask := ledger.Request{Job: run.Job, Agent: run.Agent, Trigger: run.Trigger, Detail: t.Detail, ScheduledAt: run.ScheduledAt}
	return record.Play(ctx, r.ledger, rec, ask, t.Redactor(), func(ctx context.Context, again ledger.Run, a ledger.Attempt, p *record.Player) (ledger.Result, error) {
		return r.play(ctx, again, a, t, p)
	})
}

func recordedTask(p *plan.Current, rec replay.Recording) (run ledger.Run, t *plan.Task, err error) {
	if rec.Run == nil || len(rec.Attempts) == 0 {
		return run, t, errors.New("the recording holds no attempt at a run, so there is nothing to play again")
	}

	run = ledger.Run{Job: rec.Run.Job, Agent: rec.Run.Agent, Trigger: rec.Run.Trigger, Detail: rec.Run.Detail,
		ScheduledAt: rec.Run.ScheduledAt, QueuedAt: rec.Run.QueuedAt, StartedAt: rec.Run.StartedAt}
	if _, err := fmt.Sscan(rec.Run.ID, &run.ID); err != nil {
		return run, t, fmt.Errorf("the recording is of run %q, which is no number", rec.Run.ID)
	}
	if t, err = p.Resolve(run); err != nil {
		return run, t, err
	}

	if t.Executes() {
		return run, t, fmt.Errorf("run %d was done by the program %s (executor), which cannot be played again: nobody knows what it and its model would do", run.ID, t.Job.Executor.Argv[0])
	}
	if t.NeedsModel() && len(rec.Exchanges) == 0 {
		if run.Job == "" {
			return run, t, fmt.Errorf("the answers of the model in run %d were not recorded; only runs of a job can be recorded (record: true)", run.ID)
		}
		return run, t, fmt.Errorf("the answers of the model in run %d were not recorded; set record: true on its job %s to record later runs", run.ID, run.Job)
	}

	return run, t, nil
}

// play executes one attempt at a recorded task. again is the new run in the temporary ledger.
func (r *Runner) play(ctx context.Context, again ledger.Run, a ledger.Attempt, recorded *plan.Task, p *record.Player) (ledger.Result, error) {
	t := newAttempt(recorded, a)
	defer t.close()
	t.Run = again
	if len(p.Attempt().Snapshot) > 0 {
		if err := json.Unmarshal(p.Attempt().Snapshot, &t.found); err != nil {
			return ledger.Result{}, fmt.Errorf("what attempt %d found when it began cannot be read: %w", p.Attempt().Number, err)
		}
	}

	t.found.run = recorded.Run
	t.found.apply(t)
	t.wrapTool = p.AnswerFromRecord
	if _, err := os.Stat(t.Agent.Workdir); err != nil { // a replay does not use the workdir and must not create it
		t.BaseDir = filepath.Dir(r.files.Folder)
	}

	if name := p.FirstModel(); t.relay != nil && name != "" {
		t.relay.StartAt(name)
	}

	o, err := r.loop.options(ctx, t)
	if err != nil {
		return plan.ResultOf(err)
	}

	var inner *loop.Inner
	if t.calls != nil {
		inner = t.calls.inner
	}
	p.Attach(&o, inner, t.NeedsModel())
	res, err := loop.Run(ctx, o)
	if errors.Is(err, record.ErrCut) {
		return ledger.Result{Outcome: domain.OutcomeInterrupted, Error: p.Attempt().Error}, nil
	}
	if err != nil {
		return ledger.Result{}, err
	}

	expect := t.Job.Expect
	t.Job.Expect = nil // a replay has no effects that could be checked
	out, err := judge(ctx, r.conditionEnv(t), t, res)
	if len(expect) > 0 && out.Outcome.Done() {
		p.AdoptVerdict(&out, condition.UnmetPrefix)
	}

	return out, err
}

func (r *Runner) snapshotAsOf(ctx context.Context, run ledger.Run) (json.RawMessage, error) {
	d, err := plan.ParseDetail(run)
	if err != nil {
		return nil, err
	}

	s := snapshot{File: d.File}
	if s.LastSuccess, s.LastRun, err = timesAsOf(ctx, r.ledger, run); err != nil {
		return nil, err
	}

	if len(d.Files) > 0 {
		// DroppedBefore reads earlier attempts, so this asks for the attempt after the last one.
		left, _, err := r.files.DroppedBefore(ctx, &plan.Attempt{Task: plan.Task{Run: run}, Try: ledger.Attempt{Run: run.ID, Number: run.Attempt + 1}})
		if err != nil {
			return nil, err
		}

		s.Manifest = r.files.ManifestPath(run.ID)
		for _, f := range d.Files {
			if !left[f.Path] {
				s.Files = append(s.Files, snapshotFile{File: f})
			}
		}
	}

	return json.Marshal(s)
}

// timesAsOf returns the start of the job's last success and the end of its last run, as of the
// start of run.
func timesAsOf(ctx context.Context, l *ledger.Ledger, run ledger.Run) (lastSuccess, lastRun time.Time, err error) {
	if run.Job == "" {
		return lastSuccess, lastRun, nil
	}
	for f := (runs.Filter{Job: run.Job, State: domain.StateFinished, Before: run.ID}); ; {
		earlier, err := l.Runs.List(ctx, f)
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
