package record

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"rouse/agent/model/replay"
	"rouse/agent/redact"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
)

// Result is the result of a replay.
type Result struct {
	Differences []replay.Difference // empty if the run does the same as recorded
	// Unknown describes the place where the recording ends although the run would continue. It is
	// "" otherwise.
	Unknown       string
	Recorded, Now Ending
}

// Same reports whether the run does the same as recorded.
func (p Result) Same() bool { return len(p.Differences) == 0 && p.Unknown == "" }

// Ending is the end of a run with its totals.
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

// PlayAttempt runs the loop of one attempt. It must attach the player to the options of the loop.
type PlayAttempt func(ctx context.Context, run ledger.Run, a ledger.Attempt, p *Player) (ledger.Result, error)

// Play replays a recorded run. It writes to l, which must be temporary. ask is the request for the
// replayed run.
func Play(ctx context.Context, l *ledger.Ledger, rec replay.Recording, ask ledger.Request, redact *redact.Redactor, attempt PlayAttempt) (Result, error) {
	accepted, err := l.Enqueue(ctx, ask)
	if err != nil {
		return Result{}, err
	}

	p := &Player{recording: rec, redact: redact, reported: map[string]bool{}}
	out := Result{Recorded: endingOf(rec)}
	var last ledger.Result
	for i, at := range rec.Attempts {
		again, a, err := l.StartAttempt(ctx, accepted[0].Run)
		if err != nil {
			return Result{}, fmt.Errorf("attempt %d cannot be played: %w", at.Number, err)
		}

		p.startAttempt(at)
		if last, err = p.play(ctx, again, a, attempt); err != nil {
			return Result{}, err
		}

		if i == len(rec.Attempts)-1 || !p.endedAsRecorded(last) {
			last = p.adoptEnding(last, out.Recorded)
			if err := l.Finish(ctx, a, last); err != nil {
				return Result{}, err
			}
			break
		}
		if err := continueAsRecorded(ctx, l, a, at, last); err != nil {
			return Result{}, err
		}
	}
	if err := p.compare(ctx, l, accepted[0].Run); err != nil {
		return Result{}, err
	}

	again, err := l.Runs.Get(ctx, accepted[0].Run)
	if err != nil {
		return Result{}, err
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

func (p *Player) play(ctx context.Context, run ledger.Run, a ledger.Attempt, attempt PlayAttempt) (ledger.Result, error) {
	if p.attempt.Asked(replay.QuestionDefinition) {
		return ledger.Result{Wait: &inbox.Question{Kind: inbox.KindApproval, Title: "the recorded run was held", Message: "for the definition of its job",
			Options: []string{inbox.ApprovalOnce, inbox.ApprovalDeny}, Action: inbox.Action{Hash: "definition"}}}, nil
	}

	return attempt(ctx, run, a, p)
}

func endingOf(rec replay.Recording) Ending {
	e := Ending{Outcome: rec.Run.Outcome, Exit: rec.Run.Exit, Verified: rec.Run.Verified, Summary: rec.Run.Summary, Error: rec.Run.Error,
		Steps: rec.Run.Steps, Calls: rec.Run.Calls, CostMicroUSD: rec.Run.CostMicroUSD}
	if u := rec.Run.Usage; u != nil {
		e.Tokens = u.Input + u.Output
	}
	return e
}

// continueAsRecorded brings the replayed run to the state in which the recorded run began its next
// attempt.
func continueAsRecorded(ctx context.Context, l *ledger.Ledger, a ledger.Attempt, at replay.Attempt, res ledger.Result) error {
	if at.State == domain.AttemptInterrupted {
		return l.Interrupt(ctx, a, at.Error, nil)
	}
	if err := l.Finish(ctx, a, res); err != nil {
		return err
	}

	if res.Wait != nil {
		if err := answerAsRecorded(ctx, l, a, at.Questions); err != nil {
			return err
		}
	}

	// The recorded run continued after this attempt, so it was retried. Retry it here in the same
	// way.
	run, err := l.Runs.Get(ctx, a.Run)
	if err == nil && run.State == domain.StateFinished {
		_, err = l.Retry(ctx, a.Run)
	}

	return err
}

// answerAsRecorded answers the questions of a replayed attempt as the owner did.
func answerAsRecorded(ctx context.Context, l *ledger.Ledger, a ledger.Attempt, heard []replay.Question) error {
	items, err := l.Inbox.OfRun(ctx, a.Run)
	if err != nil {
		return err
	}

	for _, i := range items {
		if i.Attempt != a.Number || i.State != inbox.ItemOpen || len(heard) == 0 {
			continue
		}

		if heard[0].State == inbox.ItemAnswered {
			_, err = l.Answer(ctx, i.ID, heard[0].Answer)
		} else {
			err = l.ExpireItem(ctx, i.ID, ledger.Result{Outcome: domain.OutcomeTimeout})
		}
		if err != nil {
			return fmt.Errorf("the answer to %q cannot be given again: %w", i.Message, err)
		}

		heard = heard[1:]
	}

	return nil
}
