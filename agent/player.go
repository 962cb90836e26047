package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/replay"
	"rouse/agent/redact"
	"rouse/agent/tool"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// errCut is where the record of an attempt that was cut off ends.
var errCut = errors.New("the recorded attempt was cut off here")

// player stands for everything beyond the loop in a replay: it is the model, it answers for
// the tools, and it compares.
type player struct {
	loop.Recorder
	rec    replay.Recording
	redact *redact.Redactor

	mu        sync.Mutex
	attempt   replay.Attempt
	exchanges []replay.Exchange      // of the attempt, that are to come
	calls     map[string]replay.Call // of the attempt, by key
	step      int
	cut       bool   // the end of the attempt's record was reached
	unknown   string // and the run would go on
	found     []replay.Difference
	told      map[string]bool // differences of requests, which come again with each
}

func (p *player) begin(at replay.Attempt) {
	p.attempt, p.exchanges, p.calls, p.cut, p.step = at, nil, map[string]replay.Call{}, false, 0
	for _, x := range p.rec.Exchanges {
		if x.Attempt == at.Number && !p.unheard(at, x) {
			p.exchanges = append(p.exchanges, x)
		}
	}

	for _, c := range p.rec.Calls {
		if c.Attempt == at.Number {
			p.calls[c.Key] = c
		}
	}
}

// unheard says whether an answer was lost with its process before the step was over.
func (p *player) unheard(at replay.Attempt, x replay.Exchange) bool {
	return at.State == domain.AttemptInterrupted && slices.ContainsFunc(p.rec.Steps, func(s replay.Step) bool {
		return s.Attempt == x.Attempt && s.Number == x.Step && s.Unfinished
	})
}

// interrupted says whether the recorded attempt had no end of its own.
func (p *player) interrupted() bool { return p.attempt.State == domain.AttemptInterrupted }

func (p *player) differs(d replay.Difference) {
	d.Attempt, d.Step = p.attempt.Number, p.step
	p.found = append(p.found, d)
}

// StartStep implements loop.Recorder.
func (p *player) StartStep(ctx context.Context, s loop.Step) error {
	p.mu.Lock()
	p.step = s.Number
	p.mu.Unlock()
	return p.Recorder.StartStep(ctx, s)
}

// Flush lets the record that is behind it write what it has held back.
func (p *player) Flush(ctx context.Context) error { return flushed(ctx, p.Recorder) }

// StartCall implements loop.Recorder. A call that a dead process did not come to is not
// begun now: the next attempt would take it for one that may have been made.
func (p *player) StartCall(ctx context.Context, c loop.Call) error {
	p.mu.Lock()
	_, known := p.calls[c.Key]
	stop := !known && p.interrupted()
	p.cut = p.cut || stop
	p.mu.Unlock()
	if stop {
		return errCut
	}
	return p.Recorder.StartCall(ctx, c)
}

// FinishCall implements loop.Recorder. A call in which a dead process was cut off, as in the
// middle of a reduction, does not end: the next attempt makes it again.
func (p *player) FinishCall(ctx context.Context, c loop.Call) error {
	p.mu.Lock()
	stop := p.cut && p.interrupted() && len(p.calls[c.Key].Envelope) == 0
	p.mu.Unlock()
	if stop {
		return errCut
	}
	return p.Recorder.FinishCall(ctx, c)
}

// Stream implements model.Provider: the next recorded answer, whatever is asked, since it
// is what is known of the model. What is asked is compared.
func (p *player) Stream(_ context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		x, err := p.next(r)
		if err != nil {
			if x.Usage != nil {
				u := x.Usage.Model()
				if !yield(model.Event{Usage: &u}, nil) {
					return
				}
			}

			yield(model.Event{}, err)
			return
		}

		x.Events(yield)
	}
}

func (p *player) next(r model.Request) (replay.Exchange, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if len(p.exchanges) == 0 {
		return p.cutOff(), p.over("the recording has no further answer of the model")
	}

	x := p.exchanges[0]
	p.exchanges = p.exchanges[1:]
	if x.Request == nil {
		return x, nil
	}

	for _, d := range replay.Compare(*x.Request, cleanRequest(r, p.redact)) {
		if key := d.What + "\x00" + d.Recorded + "\x00" + d.Now; !p.told[key] {
			p.told[key] = true
			p.differs(d)
		}
	}

	switch {
	case x.Request.NoTools && !r.NoTools:
		return replay.Exchange{}, p.over("the recorded run had used up its steps here and was asked for a last word; this one may go on")
	case r.NoTools && !x.Request.NoTools: // what it would have said for the end nobody knows
		return replay.Exchange{}, &model.Error{Kind: model.KindBadRequest, Message: "the last word of the model is not in the recording"}
	}

	return x, nil
}

// cutOff is what is recorded of a turn that a dead process had begun: what it took.
func (p *player) cutOff() replay.Exchange {
	for _, s := range p.rec.Steps {
		if p.interrupted() && s.Attempt == p.attempt.Number && s.Number == p.step && s.Usage != nil && *s.Usage != (replay.Usage{}) {
			return replay.Exchange{Answer: replay.Answer{Usage: s.Usage}}
		}
	}
	return replay.Exchange{}
}

// over ends an attempt whose record has ended. A turn that the recorded attempt had begun was
// paid for; another one is not.
func (p *player) over(why string) error {
	p.cut = true
	if !p.interrupted() {
		p.unknown = fmt.Sprintf("attempt %d, step %d: %s, so what it does from there on is not known", p.attempt.Number, p.step, why)
	}

	kind := model.KindBadRequest // which no other model is asked for
	for _, s := range p.rec.Steps {
		if p.interrupted() && s.Attempt == p.attempt.Number && s.Number == p.step {
			kind = model.KindTruncated
		}
	}
	return &model.Error{Kind: kind, Message: why}
}

// lasted is how long the calls took when they were made, by key.
func (p *player) lasted() map[string]time.Duration {
	out := map[string]time.Duration{}
	for _, c := range p.rec.Calls {
		if _, known := out[c.Key]; !known && len(c.Envelope) > 0 && c.State != domain.CallCancelled {
			out[c.Key] = time.Duration(c.TookMS) * time.Millisecond
		}
	}
	return out
}

// answered is a tool whose calls are answered from the record. Those tools alone work that
// reach nothing beyond the run: they end it, ask in it, and keep its list.
func (p *player) answered(t tool.Tool) tool.Tool {
	if t.Spec().Scope == tool.ScopeRun {
		return t
	}
	return t.Answered(func(_ context.Context, in tool.Invocation, _ json.RawMessage) (tool.Envelope, error) {
		p.mu.Lock()
		defer p.mu.Unlock()

		c, ok := p.calls[in.Key]
		var e tool.Envelope
		switch {
		case ok && c.Tool == t.Name() && len(c.Envelope) > 0:
			if err := json.Unmarshal(c.Envelope, &e); err != nil {
				return e, fmt.Errorf("the recorded result of %s cannot be read: %w", c.Tool, err)
			}
			if e.Kind != tool.KindToolNotFound {
				return e, nil
			}
		case ok && p.interrupted():
			p.cut = true
			return e, errCut
		}

		return tool.Failure(tool.KindUnavailable, "the recording has no result of this call"), nil
	})
}

// endedAsRecorded says whether an attempt came to the same kind of end as the recorded one,
// so that the next one follows on it.
func (p *player) endedAsRecorded(res ledger.Result) bool {
	switch p.attempt.State {
	case domain.AttemptInterrupted: // perhaps when nothing but its end was missing in the record
		return p.cut || len(p.exchanges) == 0
	case domain.AttemptWaiting:
		return res.Wait != nil
	case domain.AttemptFailed:
		return res.Wait == nil && !p.cut && res.Outcome.Failed()
	}
	return res.Wait == nil && !p.cut && !res.Outcome.Failed()
}

// adopt gives an attempt that nobody in the loop ended the end that its record has.
func (p *player) adopt(res ledger.Result, recorded Ending) ledger.Result {
	last := p.attempt.Number == p.rec.Attempts[len(p.rec.Attempts)-1].Number
	byOthers := p.cut || res.Wait != nil || p.interrupted()
	if p.unknown == "" && last && byOthers && p.endedAsRecorded(res) {
		res.Outcome, res.Exit, res.Summary, res.Error, res.Verified = recorded.Outcome, recorded.Exit, recorded.Summary, recorded.Error, recorded.Verified
	} else if res.Wait != nil {
		res.Exit, res.Summary = domain.ExitEnded, "the run asks: "+res.Wait.Message
	}

	res.Wait = nil
	return res
}

// expected gives a run the recorded verdict on what its job expects: nothing was done that
// could be looked at.
func (p *player) expected(res *ledger.Result) {
	why := p.rec.Run.Error
	if p.attempt.Number != p.rec.Attempts[len(p.rec.Attempts)-1].Number {
		why = p.attempt.Error
	}
	if strings.HasPrefix(why, unmetPrefix) {
		res.Outcome, res.Error, res.Verified = domain.OutcomeError, why, false
		return
	}
	res.Verified = res.Verified || p.rec.Run.Verified
}

// compare holds the steps and calls of the played run against those of the record.
func (p *player) compare(ctx context.Context, l *ledger.Ledger, run int64) error {
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

	unheard := map[place]bool{} // steps whose answer was never recorded
	for _, s := range p.rec.Steps {
		at := place{s.Attempt, s.Number, 0}
		now, taken := texts[at]
		if delete(texts, at); s.Unfinished {
			unheard[at] = true
			continue
		}

		if a, b := replay.Apart(s.Text, now); s.Text != now || !taken {
			p.found = append(p.found, replay.Difference{Attempt: s.Attempt, Step: s.Number, What: what("the answer", taken), Recorded: a, Now: b})
		}
	}

	for _, s := range steps {
		at := place{s.Attempt, s.Number, 0}
		if _, more := texts[at]; more && p.unknown == "" && !p.wasCut(s.Attempt) {
			p.found = append(p.found, replay.Difference{Attempt: s.Attempt, Step: s.Number, What: "a step more", Now: s.Text})
		}
	}

	made := map[place]ledger.Call{}
	for _, c := range calls {
		made[place{c.Attempt, c.Step, c.Index}] = c
	}

	for _, c := range p.rec.Calls {
		at := place{c.Attempt, c.Step, c.Index}
		now, ok := made[at]
		delete(made, at)
		p.compareCall(c, now, ok)
	}

	for _, c := range calls {
		if _, more := made[place{c.Attempt, c.Step, c.Index}]; more {
			p.found = append(p.found, replay.Difference{Attempt: c.Attempt, Step: c.Step, What: fmt.Sprintf("call %d, which was not made", c.Index+1), Now: c.Tool + " " + string(c.Args)})
		}
	}

	return nil
}

func what(thing string, taken bool) string {
	if !taken {
		return thing + ", in a step that is not taken any more"
	}
	return thing
}

func (p *player) wasCut(attempt int) bool {
	for _, a := range p.rec.Attempts {
		if a.Number == attempt {
			return a.State == domain.AttemptInterrupted
		}
	}
	return false
}

func (p *player) compareCall(c replay.Call, now ledger.Call, made bool) {
	add := func(what, a, b string) {
		a, b = replay.Apart(a, b)
		p.found = append(p.found, replay.Difference{Attempt: c.Attempt, Step: c.Step, What: fmt.Sprintf("call %d, %s%s", c.Index+1, c.Tool, what), Recorded: a, Now: b})
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

// compareEnds holds the end of the played run against that of the record.
func (p *player) compareEnds(recorded, now Ending) {
	add := func(what, a, b string) {
		if a != b {
			a, b = replay.Apart(a, b)
			p.found = append(p.found, replay.Difference{What: what, Recorded: a, Now: b})
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
