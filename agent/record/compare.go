package record

import (
	"context"
	"fmt"
	"math"
	"slices"

	"rouse/agent/model"
	"rouse/agent/model/replay"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

func (p *Player) compare(ctx context.Context, l *ledger.Ledger, run int64) error {
	steps, err := l.Steps.List(ctx, run)
	if err != nil {
		return err
	}

	calls, err := l.Steps.Calls(ctx, run)
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
		// After an interruption or the end of the recording, the recorded run has no steps to
		// compare.
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

func (p *Player) wasInterrupted(attempt int) bool {
	return slices.ContainsFunc(p.recording.Attempts, func(a replay.Attempt) bool {
		return a.Number == attempt && a.State == domain.AttemptInterrupted
	})
}

func (p *Player) compareCall(c replay.Call, now ledger.Call, made bool) {
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

func (p *Player) compareEnds(recorded, now Ending) {
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
	add("cost", model.USD(recorded.CostMicroUSD), model.USD(now.CostMicroUSD))
}

// atEnd sorts differences without an attempt after all attempts.
func atEnd(attempt int) int {
	if attempt == 0 {
		return math.MaxInt
	}
	return attempt
}
