package record

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
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// ErrCut is the error at the point where the record of an interrupted attempt ends.
var ErrCut = errors.New("the recorded attempt was cut off here")

// Player replaces the model, the tools and the authorizer of a replay. It collects the differences.
type Player struct {
	loop.Recorder
	recording replay.Recording
	inner     *loop.Inner // counts actions of modules within calls; nil if the run has no tools of skills
	redact    *redact.Redactor

	mu          sync.Mutex
	attempt     replay.Attempt
	exchanges   []replay.Exchange      // remaining exchanges of the attempt
	calls       map[string]replay.Call // calls of the attempt, by key
	step        int
	reachedEnd  bool   // the record of the attempt has ended
	unknown     string // place where the recording ends although the run would continue
	differences []replay.Difference
	reported    map[string]bool // reported differences of requests, which recur in each request
}

func (p *Player) startAttempt(at replay.Attempt) {
	p.attempt, p.exchanges, p.calls, p.reachedEnd, p.step = at, nil, map[string]replay.Call{}, false, 0
	for _, x := range p.recording.Exchanges {
		if x.Attempt == at.Number && !p.answerLost(at, x) {
			p.exchanges = append(p.exchanges, x)
		}
	}

	for _, c := range p.recording.Calls {
		if c.Attempt == at.Number {
			p.calls[c.Key] = c
		}
	}
}

// answerLost reports whether an answer was lost because its process died before the end of the
// step.
func (p *Player) answerLost(at replay.Attempt, x replay.Exchange) bool {
	return at.State == domain.AttemptInterrupted && slices.ContainsFunc(p.recording.Steps, func(s replay.Step) bool {
		return s.Attempt == x.Attempt && s.Number == x.Step && s.Unfinished
	})
}

// Attempt returns the recorded attempt that is being replayed.
func (p *Player) Attempt() replay.Attempt { return p.attempt }

// FirstModel returns the name of the first model that answered in the attempt, or "".
func (p *Player) FirstModel() string {
	if len(p.exchanges) == 0 {
		return ""
	}
	return p.exchanges[0].Model
}

// Attach makes the loop take answers, permissions and times from the record. inner counts the
// actions of modules within calls. It is nil if the run has no tools of skills. asksModel reports
// whether the run uses a model.
func (p *Player) Attach(o *loop.Options, inner *loop.Inner, asksModel bool) {
	if inner != nil {
		p.inner = inner
	}
	// Durations are not compared, so there are no delays and no timeouts.
	o.Policy.NoRetryDelay, o.Bounds.Wall, o.Bounds.Idle = true, -1, -1
	p.Recorder, o.Recorder, o.PriorDurations = o.Recorder, p, p.durations()
	o.Authorizer, o.Now = p, p.now
	if asksModel {
		o.Provider = p
	}
}

func (p *Player) interrupted() bool { return p.attempt.State == domain.AttemptInterrupted }

// StartStep implements loop.Recorder.
func (p *Player) StartStep(ctx context.Context, s loop.Step) error {
	p.mu.Lock()
	p.step = s.Number
	p.mu.Unlock()
	return p.Recorder.StartStep(ctx, s)
}

// Flush makes the wrapped recorder write its buffer.
func (p *Player) Flush(ctx context.Context) error { return p.Recorder.Flush(ctx) }

// StartCall implements loop.Recorder. It returns ErrCut for a call that the interrupted process did
// not reach.
func (p *Player) StartCall(ctx context.Context, c loop.Call) error {
	if p.beyond(c) {
		return ErrCut
	}
	return p.Recorder.StartCall(ctx, c)
}

// FinishCall implements loop.Recorder. It returns ErrCut for the call in which the process was
// interrupted.
func (p *Player) FinishCall(ctx context.Context, c loop.Call) error {
	if p.cutOff(c) {
		return ErrCut
	}
	return p.Recorder.FinishCall(ctx, c)
}

// AnswerCall implements loop.Recorder.
func (p *Player) AnswerCall(ctx context.Context, c loop.Call) error {
	if p.beyond(c) || p.cutOff(c) {
		return ErrCut
	}
	return p.Recorder.AnswerCall(ctx, c)
}

// beyond reports whether the interrupted process did not reach a call.
func (p *Player) beyond(c loop.Call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	_, known := p.calls[c.Key]
	stop := !known && p.interrupted()
	p.reachedEnd = p.reachedEnd || stop
	return stop
}

// cutOff reports whether the process was interrupted within a call.
func (p *Player) cutOff(c loop.Call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reachedEnd && p.interrupted() && len(p.calls[c.Key].Envelope) == 0
}

// Stream implements model.Provider. It returns the next recorded answer and compares the request.
func (p *Player) Stream(_ context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		x, err := p.next(r)
		if err != nil {
			if x.Usage != nil {
				u := x.Usage.Clamped()
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

func (p *Player) next(r model.Request) (replay.Exchange, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	// The recording ends here. Either its process was interrupted, or the replay takes more steps.
	if len(p.exchanges) == 0 {
		return p.usageAtCut(), p.recordingEnded("the recording has no further answer of the model")
	}

	x := p.exchanges[0]
	p.exchanges = p.exchanges[1:]
	if x.Request == nil {
		return x, nil
	}

	// Each request contains the whole transcript, and so all differences of earlier requests.
	for _, d := range replay.Compare(*x.Request, cleanRequest(r, p.redact)) {
		if key := d.What + "\x00" + d.Recorded + "\x00" + d.Now; !p.reported[key] {
			p.reported[key] = true
			d.Attempt, d.Step = p.attempt.Number, p.step
			p.differences = append(p.differences, d)
		}
	}

	switch {
	case x.Request.NoTools && !r.NoTools:
		return replay.Exchange{}, p.recordingEnded("the recorded run had used up its steps here and was asked for a last word; this one may go on")
	case r.NoTools && !x.Request.NoTools: // its answer to that request is unknown
		return replay.Exchange{}, &model.Error{Kind: model.KindBadRequest, Message: "the last word of the model is not in the recording"}
	}

	return x, nil
}

// usageAtCut returns the recorded usage of a turn that the interrupted process had begun.
func (p *Player) usageAtCut() replay.Exchange {
	for _, s := range p.recording.Steps {
		if p.interrupted() && s.Attempt == p.attempt.Number && s.Number == p.step && s.Usage != nil && *s.Usage != (model.Usage{}) {
			return replay.Exchange{Answer: replay.Answer{Usage: s.Usage}}
		}
	}
	return replay.Exchange{}
}

func (p *Player) recordingEnded(why string) error {
	p.reachedEnd = true
	if !p.interrupted() {
		p.unknown = fmt.Sprintf("attempt %d, step %d: %s, so what it does from there on is not known", p.attempt.Number, p.step, why)
	}

	kind := model.KindBadRequest // an error without a fallback
	for _, s := range p.recording.Steps {
		if p.interrupted() && s.Attempt == p.attempt.Number && s.Number == p.step {
			kind = model.KindTruncated
		}
	}
	return &model.Error{Kind: kind, Message: why}
}

// durations returns the recorded durations of the calls, by key.
func (p *Player) durations() map[string]time.Duration {
	out := map[string]time.Duration{}
	for _, c := range p.recording.Calls {
		if _, known := out[c.Key]; !known && len(c.Envelope) > 0 && c.State != domain.CallCancelled {
			out[c.Key] = time.Duration(c.TookMS) * time.Millisecond
		}
	}
	return out
}

// AnswerFromRecord returns a tool that answers calls from the record. Tools that affect only the
// run itself are returned unchanged.
func (p *Player) AnswerFromRecord(t tool.Tool) tool.Tool {
	if t.Spec().Scope == tool.ScopeRun {
		return t
	}
	return t.WithHandler(func(_ context.Context, in tool.Invocation, _ json.RawMessage) (tool.Envelope, error) {
		p.mu.Lock()
		defer p.mu.Unlock()

		c, ok := p.calls[in.Key]
		if w := c.Within; ok && w != nil && p.inner != nil { // do not repeat its effects
			spent := loop.Spent{CostMicroUSD: w.CostMicroUSD}
			if w.Usage != nil {
				spent.Usage = w.Usage.Clamped()
			}
			p.inner.Account(w.Turns, w.Steps, w.Calls, spent)
		}

		var e tool.Envelope
		switch {
		case ok && len(c.Envelope) == 0 && p.inner != nil && t.Spec().Requires == tool.RequiresOffer && p.attempt.Asked(replay.QuestionApproval):
			p.inner.Wait(in.Key, &tool.ApprovalRequest{Call: in.Key, Tool: t.Name(), Why: "the recorded run waited for an approval within this call", Hash: tool.ActionHash(in.Agent, t.Name(), in.Key)})
		case ok && c.Tool == t.Name() && len(c.Envelope) > 0:
			if err := json.Unmarshal(c.Envelope, &e); err != nil {
				return e, fmt.Errorf("the recorded result of %s cannot be read: %w", c.Tool, err)
			}
			if e.Kind != tool.KindToolNotFound {
				return e, nil
			}
		case ok && p.interrupted():
			p.reachedEnd = true
			return e, ErrCut
		}

		return tool.Failure(tool.KindUnavailable, "the recording has no result of this call"), nil
	})
}

// now returns the recorded time of a result instead of the current time.
func (p *Player) now(key string) string {
	p.mu.Lock()
	defer p.mu.Unlock()

	var e tool.Envelope
	if c, ok := p.calls[key]; !ok || json.Unmarshal(c.Envelope, &e) != nil {
		return ""
	}
	return e.Now
}

// endedAsRecorded reports whether an attempt ended as recorded, so that the next attempt follows.
func (p *Player) endedAsRecorded(res ledger.Result) bool {
	switch p.attempt.State {
	case domain.AttemptInterrupted: // possibly only the end of the attempt was not recorded
		return p.reachedEnd || len(p.exchanges) == 0
	case domain.AttemptWaiting:
		return res.Wait != nil
	case domain.AttemptFailed:
		return res.Wait == nil && !p.reachedEnd && res.Outcome.Failed()
	}
	return res.Wait == nil && !p.reachedEnd && !res.Outcome.Failed()
}

// adoptEnding sets the recorded end of the run if the attempt was not ended by the loop.
func (p *Player) adoptEnding(res ledger.Result, recorded Ending) ledger.Result {
	last := p.attempt.Number == p.recording.Attempts[len(p.recording.Attempts)-1].Number
	byOthers := p.reachedEnd || res.Wait != nil || p.interrupted()
	if p.unknown == "" && last && byOthers && p.endedAsRecorded(res) {
		res.Outcome, res.Exit, res.Summary, res.Error, res.Verified = recorded.Outcome, recorded.Exit, recorded.Summary, recorded.Error, recorded.Verified
	} else if res.Wait != nil {
		res.Exit, res.Summary = domain.ExitEnded, "the run asks: "+res.Wait.Message
	}

	res.Wait = nil
	return res
}

// AdoptVerdict sets the recorded verdict on the job's expectations, because a replay cannot check
// them. unmet is the prefix of errors about an unmet expectation.
func (p *Player) AdoptVerdict(res *ledger.Result, unmet string) {
	why := p.recording.Run.Error
	if p.attempt.Number != p.recording.Attempts[len(p.recording.Attempts)-1].Number {
		why = p.attempt.Error
	}
	if strings.HasPrefix(why, unmet) {
		res.Outcome, res.Error, res.Verified = domain.OutcomeError, why, false
		return
	}
	res.Verified = res.Verified || p.recording.Run.Verified
}

// Authorize implements loop.Authorizer. If the recorded attempt waited for the approval of a call,
// the call has no recorded answer and waits again.
func (p *Player) Authorize(_ context.Context, in tool.Invocation, t tool.Tool, _ json.RawMessage) (tool.Verdict, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, made := p.calls[in.Key]; made || !p.attempt.Asked(replay.QuestionApproval) {
		return tool.Verdict{}, nil
	}
	return tool.Verdict{Ask: &tool.ApprovalRequest{Tool: t.Name(), Why: "the recorded run waited for an approval here", Hash: tool.ActionHash(in.Agent, t.Name(), in.Key)}}, nil
}

// OnCallsStart implements loop.Authorizer.
func (p *Player) OnCallsStart(context.Context) error { return nil }

var _ loop.Authorizer = (*Player)(nil)
