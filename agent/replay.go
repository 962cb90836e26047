package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"rouse/agent/loop"
	"rouse/agent/model/replay"
	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// ReplayResult is what became of a run that was played again.
type ReplayResult struct {
	Differences []replay.Difference // none: it does today what it did
	// Unknown names where the recording ends although the run would go on, or is "".
	Unknown       string
	Recorded, Now Ending
}

// Same says whether the run does today what it did.
func (p ReplayResult) Same() bool { return len(p.Differences) == 0 && p.Unknown == "" }

// Ending is how a run ended, and what it took.
type Ending struct {
	Outcome      domain.Outcome `json:"outcome"`
	Exit         domain.Exit    `json:"exit"`
	Verified     bool           `json:"verified"`
	Summary      string         `json:"summary,omitempty"`
	Error        string         `json:"error,omitempty"`
	Steps        int            `json:"steps"`
	Calls        int            `json:"calls"`
	Tokens       int64          `json:"tokens"`
	CostMicroUSD int64          `json:"cost_micro_usd"`
}

// Replay plays a run again with the current plan and the same loop. Recorded answers replace the
// model, and recorded results replace all tools. It writes into the runner's own ledger and
// folders, which must be temporary.
func (r *Runner) Replay(ctx context.Context, rec replay.Recording) (ReplayResult, error) {
	run, t, err := r.recordedTask(rec)
	if err != nil {
		return ReplayResult{}, err
	}

	accepted, err := r.ledger.Enqueue(ctx, ledger.Request{Job: run.Job, Agent: run.Agent, Trigger: run.Trigger, Detail: t.Detail, ScheduledAt: run.ScheduledAt})
	if err != nil {
		return ReplayResult{}, err
	}

	p := &replayer{recording: rec, redact: t.Redactor(), reported: map[string]bool{}}
	out := ReplayResult{Recorded: endingOf(rec)}
	var last ledger.Result
	for i, at := range rec.Attempts {
		again, a, err := r.ledger.StartAttempt(ctx, accepted[0].Run)
		if err != nil {
			return ReplayResult{}, fmt.Errorf("attempt %d cannot be played: %w", at.Number, err)
		}

		p.startAttempt(at)
		if last, err = r.play(ctx, again, a, t, p); err != nil {
			return ReplayResult{}, err
		}

		if i == len(rec.Attempts)-1 || !p.endedAsRecorded(last) {
			last = p.adoptEnding(last, out.Recorded)
			if err := r.ledger.Finish(ctx, a, last); err != nil {
				return ReplayResult{}, err
			}
			break
		}
		if err := r.continueAsRecorded(ctx, a, at, last); err != nil {
			return ReplayResult{}, err
		}
	}
	if err := p.compare(ctx, r.ledger, accepted[0].Run); err != nil {
		return ReplayResult{}, err
	}

	again, err := r.ledger.Run(ctx, accepted[0].Run)
	if err != nil {
		return ReplayResult{}, err
	}

	out.Now = Ending{Outcome: last.Outcome, Exit: last.Exit, Verified: last.Verified, Summary: p.redact.Replace(last.Summary), Error: p.redact.Replace(last.Error),
		Steps: again.Steps, Calls: again.Calls, Tokens: again.Usage.TokensIn + again.Usage.TokensOut, CostMicroUSD: again.Usage.CostMicroUSD}
	if out.Unknown = p.unknown; p.unknown == "" {
		p.compareEnds(out.Recorded, out.Now)
	}

	slices.SortStableFunc(p.differences, func(a, b replay.Difference) int {
		return cmp.Or(cmp.Compare(atEnd(a.Attempt), atEnd(b.Attempt)), cmp.Compare(a.Step, b.Step))
	})
	out.Differences = p.differences
	return out, nil
}

func (r *Runner) recordedTask(rec replay.Recording) (run ledger.Run, t *plan.Task, err error) {
	if rec.Run == nil || len(rec.Attempts) == 0 {
		return run, t, errors.New("the recording holds no attempt at a run, so there is nothing to play again")
	}

	run = ledger.Run{Job: rec.Run.Job, Agent: rec.Run.Agent, Trigger: rec.Run.Trigger, Detail: rec.Run.Detail,
		ScheduledAt: rec.Run.ScheduledAt, QueuedAt: rec.Run.QueuedAt, StartedAt: rec.Run.StartedAt}
	if _, err := fmt.Sscan(rec.Run.ID, &run.ID); err != nil {
		return run, t, fmt.Errorf("the recording is of run %q, which is no number", rec.Run.ID)
	}
	if t, err = r.task(run); err != nil {
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

func endingOf(rec replay.Recording) Ending {
	e := Ending{Outcome: rec.Run.Outcome, Exit: rec.Run.Exit, Verified: rec.Run.Verified, Summary: rec.Run.Summary, Error: rec.Run.Error,
		Steps: rec.Run.Steps, Calls: rec.Run.Calls, CostMicroUSD: rec.Run.CostMicroUSD}
	if u := rec.Run.Usage; u != nil {
		e.Tokens = u.Input + u.Output
	}
	return e
}

// play plays one attempt at a recorded task. again is the run that is played.
func (r *Runner) play(ctx context.Context, again ledger.Run, a ledger.Attempt, recorded *plan.Task, p *replayer) (ledger.Result, error) {
	if p.attempt.Asked(replay.QuestionDefinition) {
		return ledger.Result{Wait: &ledger.Question{Kind: ledger.KindApproval, Title: "the recorded run was held", Message: "for the definition of its job",
			Options: []string{ledger.ApprovalOnce, ledger.ApprovalDeny}, Action: ledger.Action{Hash: "definition"}}}, nil
	}

	t := newAttempt(recorded, a)
	defer t.close()
	t.Run = again
	if len(p.attempt.Snapshot) > 0 {
		if err := json.Unmarshal(p.attempt.Snapshot, &t.found); err != nil {
			return ledger.Result{}, fmt.Errorf("what attempt %d found when it began cannot be read: %w", p.attempt.Number, err)
		}
	}

	t.found.run = recorded.Run
	t.found.apply(t)
	t.wrapTool = p.answerFromRecord
	if _, err := os.Stat(t.Agent.Workdir); err != nil { // nothing is read there, so nothing is made there
		t.baseDir = filepath.Dir(r.manifests)
	}

	if t.relay != nil && len(p.exchanges) > 0 {
		t.relay.startAt(p.exchanges[0].Model)
	}

	o, err := r.options(ctx, t)
	if err != nil {
		return resultOf(err)
	}

	if t.calls != nil {
		p.inner = t.calls.inner
	}
	// Nothing is waited for, and no clock ends it: how long things took is not what is compared.
	o.Policy.NoRetryDelay, o.Bounds.Wall, o.Bounds.Idle = true, -1, -1
	p.Recorder, o.Recorder, o.PriorDurations = o.Recorder, p, p.durations()
	o.Authorizer, o.Now = p, p.now
	if t.NeedsModel() {
		o.Provider = p
	}

	res, err := loop.Run(ctx, o)
	if errors.Is(err, errCut) {
		return ledger.Result{Outcome: domain.OutcomeInterrupted, Error: p.attempt.Error}, nil
	}
	if err != nil {
		return ledger.Result{}, err
	}

	expect := t.Job.Expect
	t.Job.Expect = nil // nothing was done that could be looked at
	out, err := r.judge(ctx, t, res)
	if len(expect) > 0 && out.Outcome.Done() {
		p.adoptVerdict(&out)
	}

	return out, err
}

// continueAsRecorded brings the played run to where the recorded one began its next attempt.
func (r *Runner) continueAsRecorded(ctx context.Context, a ledger.Attempt, at replay.Attempt, res ledger.Result) error {
	if at.State == domain.AttemptInterrupted {
		return r.ledger.Interrupt(ctx, a, at.Error, nil)
	}
	if err := r.ledger.Finish(ctx, a, res); err != nil {
		return err
	}

	if res.Wait != nil {
		if err := r.answerAsRecorded(ctx, a, at.Questions); err != nil {
			return err
		}
	}

	// The recorded run went on after this attempt, so it was retried; here nobody else does that.
	run, err := r.ledger.Run(ctx, a.Run)
	if err == nil && run.State == domain.StateFinished {
		_, err = r.ledger.Retry(ctx, a.Run)
	}

	return err
}

// answerAsRecorded answers what a played attempt asks as its owner did.
func (r *Runner) answerAsRecorded(ctx context.Context, a ledger.Attempt, heard []replay.Question) error {
	items, err := r.ledger.ItemsOf(ctx, a.Run)
	if err != nil {
		return err
	}

	for _, i := range items {
		if i.Attempt != a.Number || i.State != ledger.ItemOpen || len(heard) == 0 {
			continue
		}

		if heard[0].State == ledger.ItemAnswered {
			_, err = r.ledger.Answer(ctx, i.ID, heard[0].Answer)
		} else {
			err = r.ledger.ExpireItem(ctx, i.ID, ledger.Result{Outcome: domain.OutcomeTimeout})
		}
		if err != nil {
			return fmt.Errorf("the answer to %q cannot be given again: %w", i.Message, err)
		}

		heard = heard[1:]
	}

	return nil
}

func (p *replayer) compare(ctx context.Context, l *ledger.Ledger, run int64) error {
	steps, err := l.Steps(ctx, run)
	if err != nil {
		return err
	}

	calls, err := l.Calls(ctx, run)
	if err != nil {
		return err
	}

	type place struct{ attempt, step, index int }
	texts := map[place]string{}
	for _, s := range steps {
		texts[place{s.Attempt, s.Number, 0}] = s.Text
	}

	for _, s := range p.recording.Steps {
		at := place{s.Attempt, s.Number, 0}
		now, taken := texts[at]
		if delete(texts, at); s.Unfinished {
			continue // its answer was never recorded
		}

		if a, b := replay.ExcerptDifference(s.Text, now); s.Text != now || !taken {
			what := "the answer"
			if !taken {
				what += ", in a step that is not taken any more"
			}
			p.differences = append(p.differences, replay.Difference{Attempt: s.Attempt, Step: s.Number, What: what, Recorded: a, Now: b})
		}
	}

	for _, s := range steps {
		at := place{s.Attempt, s.Number, 0}
		// Beyond an interruption, or the end of the recording, nobody knows what would have come.
		if _, more := texts[at]; more && p.unknown == "" && !p.wasInterrupted(s.Attempt) {
			p.differences = append(p.differences, replay.Difference{Attempt: s.Attempt, Step: s.Number, What: "a step more", Now: s.Text})
		}
	}

	made := map[place]ledger.Call{}
	for _, c := range calls {
		made[place{c.Attempt, c.Step, c.Index}] = c
	}

	for _, c := range p.recording.Calls {
		at := place{c.Attempt, c.Step, c.Index}
		now, ok := made[at]
		delete(made, at)
		p.compareCall(c, now, ok)
	}

	for _, c := range calls {
		if _, more := made[place{c.Attempt, c.Step, c.Index}]; more {
			p.differences = append(p.differences, replay.Difference{Attempt: c.Attempt, Step: c.Step, What: fmt.Sprintf("call %d, which was not made", c.Index+1), Now: c.Tool + " " + string(c.Args)})
		}
	}

	return nil
}

func (p *replayer) wasInterrupted(attempt int) bool {
	return slices.ContainsFunc(p.recording.Attempts, func(a replay.Attempt) bool {
		return a.Number == attempt && a.State == domain.AttemptInterrupted
	})
}

func (p *replayer) compareCall(c replay.Call, now ledger.Call, made bool) {
	add := func(what, a, b string) {
		a, b = replay.ExcerptDifference(a, b)
		p.differences = append(p.differences, replay.Difference{Attempt: c.Attempt, Step: c.Step, What: fmt.Sprintf("call %d, %s%s", c.Index+1, c.Tool, what), Recorded: a, Now: b})
	}
	switch {
	case !made:
		add(", which is not made any more", c.Tool+" "+string(c.Args), "")
	case c.Tool != now.Tool:
		add("", c.Tool+" "+string(c.Args), now.Tool+" "+string(now.Args))
	case !replay.SameJSON(c.Args, now.Args):
		add(", its arguments", string(c.Args), string(now.Args))
	case len(c.Envelope) > 0 && !replay.SameJSON(c.Envelope, now.Envelope):
		add(", its result", string(c.Envelope), string(now.Envelope))
	}
}

func (p *replayer) compareEnds(recorded, now Ending) {
	add := func(what, a, b string) {
		if a != b {
			a, b = replay.ExcerptDifference(a, b)
			p.differences = append(p.differences, replay.Difference{What: what, Recorded: a, Now: b})
		}
	}

	add("the outcome", string(recorded.Outcome), string(now.Outcome))
	add("the exit", string(recorded.Exit), string(now.Exit))
	add("whether it is verified", fmt.Sprint(recorded.Verified), fmt.Sprint(now.Verified))
	add("the summary", recorded.Summary, now.Summary)
	add("the error", recorded.Error, now.Error)
	add("steps", fmt.Sprint(recorded.Steps), fmt.Sprint(now.Steps))
	add("calls", fmt.Sprint(recorded.Calls), fmt.Sprint(now.Calls))
	add("tokens", fmt.Sprint(recorded.Tokens), fmt.Sprint(now.Tokens))
	add("cost", usd(recorded.CostMicroUSD), usd(now.CostMicroUSD))
}

// atEnd puts what is of no attempt behind the attempts.
func atEnd(attempt int) int {
	if attempt == 0 {
		return math.MaxInt
	}
	return attempt
}
