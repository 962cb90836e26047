package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/redact"
	"rouse/agent/tool"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// Recorder writes the loop's steps and calls into the ledger, fenced by the attempt. What
// begins is on disk before it does. What has ended is written together with what begins next,
// in one transaction, unless that may take a while, or the effect of a call could be lost:
// a read is made again after a crash, and an agent's database knows what was done.
type Recorder struct {
	ledger  *ledger.Ledger
	attempt ledger.Attempt
	redact  *redact.Redactor

	mu   sync.Mutex
	held []ledger.Entry // in the order in which it came
	open int            // calls that have begun
}

// NewRecorder gives the loop its record of one attempt, without the secrets.
func NewRecorder(l *ledger.Ledger, a ledger.Attempt, secrets []string) *Recorder {
	return &Recorder{ledger: l, attempt: a, redact: redactor(secrets)}
}

// Redact blacks secrets out of what an owner writes into the record.
func (r *Runner) Redact(text string) string { return redactor(r.plan.Load().Secrets).Replace(text) }

// redactor blacks secrets out.
func redactor(secrets []string) *redact.Redactor { return redact.New(secrets) }

// cleanResult is how a run ended, without the secrets that its model has heard of and repeats.
func cleanResult(res ledger.Result, redact *redact.Redactor) ledger.Result {
	res.Summary, res.Error = redact.Replace(res.Summary), redact.Replace(res.Error)
	if res.Wait != nil {
		q := *res.Wait
		q.Title, q.Message, q.Options = redact.Replace(q.Title), redact.Replace(q.Message), slices.Clone(q.Options)
		for i, o := range q.Options {
			q.Options[i] = redact.Replace(o)
		}
		res.Wait = &q
	}

	return res
}

func (r *Recorder) clean(raw json.RawMessage) json.RawMessage {
	return r.redact.JSON(raw)
}

// discreet are tools whose answers lack the secrets: what a model has heard, it can tell.
func discreet(tools []tool.Tool, redact *redact.Redactor) []tool.Tool {
	out := make([]tool.Tool, len(tools))
	for i, t := range tools {
		out[i] = t.Then(func(e tool.Envelope) tool.Envelope {
			e.Message, e.Result, e.Warnings = redact.Replace(e.Message), redact.JSON(e.Result), slices.Clone(e.Warnings)
			for i, w := range e.Warnings {
				e.Warnings[i] = redact.Replace(w)
			}
			return e
		})
	}

	return out
}

func (r *Recorder) step(s loop.Step) ledger.Step {
	return ledger.Step{
		Run: r.attempt.Run, Attempt: r.attempt.Number, Number: s.Number, Within: s.Within, Message: r.clean(s.Message), Text: r.redact.Replace(s.Text), Model: s.Model, Notices: s.Notices,
		Usage:     ledger.Usage{TokensIn: s.Usage.Input, TokensOut: s.Usage.Output, TokensCached: s.Usage.Cached, CostMicroUSD: s.CostMicroUSD},
		StartedAt: s.StartedAt, FinishedAt: s.FinishedAt,
	}
}

func (r *Recorder) call(c loop.Call) ledger.Call {
	return ledger.Call{
		Run: r.attempt.Run, Attempt: r.attempt.Number, Step: c.Step, Index: c.Index, ID: c.ID, Key: c.Key, Tool: c.Tool, Args: r.clean(c.Args),
		Effect: c.Effect, State: c.State, Envelope: r.clean(c.Envelope), StartedAt: c.StartedAt, FinishedAt: c.FinishedAt,
	}
}

// StartStep implements loop.Recorder.
func (r *Recorder) StartStep(ctx context.Context, s loop.Step) error {
	return r.write(ctx, 0, false, ledger.StepStarted(r.step(s)))
}

// FinishStep implements loop.Recorder.
func (r *Recorder) FinishStep(ctx context.Context, s loop.Step) error {
	return r.write(ctx, 0, true, ledger.StepFinished(r.step(s)))
}

// StartCall implements loop.Recorder.
func (r *Recorder) StartCall(ctx context.Context, c loop.Call) error {
	return r.write(ctx, 1, false, ledger.CallStarted(r.call(c)))
}

// FinishCall implements loop.Recorder.
func (r *Recorder) FinishCall(ctx context.Context, c loop.Call) error {
	again := c.Effect == domain.EffectRead || c.Effect == domain.EffectDatabase
	return r.write(ctx, -1, again, ledger.CallFinished(r.call(c)))
}

// Flush writes what was held back; the loop calls it when the run is over.
func (r *Recorder) Flush(ctx context.Context) error { return r.write(ctx, 0, false) }

// write writes entries after those that were held back, or holds them back, too: never while
// a call is on, which may take its time. began is how many calls there are more.
func (r *Recorder) write(ctx context.Context, began int, hold bool, entries ...ledger.Entry) error {
	r.mu.Lock()
	r.open += began
	entries = append(r.held, entries...)
	r.held = nil
	if hold = hold && r.open == 0; hold {
		r.held = entries
	}

	r.mu.Unlock()
	if hold || len(entries) == 0 {
		return nil
	}

	return r.ledger.Record(ctx, r.attempt, entries...)
}

// history is what earlier attempts of a run left for the next one.
type history struct {
	calls    map[string]loop.Past     // by key
	lasted   map[string]time.Duration // how long the calls took when they were made, by key
	messages []model.Message          // a model's transcript after the prompt
	pending  []model.Call             // asked for at its end, without a result
	skipped  map[string]bool          // keys of calls that their owner said not to make
	made     map[string]bool          // keys of calls that came to an end
	wrote    map[string]time.Time     // when calls that may have written the database began, by key
	cut      *ledger.Call             // nobody knows what became of it; nil: of all others it is known
	cutOff   bool                     // the last attempt was interrupted
	// continues is the first of the interrupted attempts that this one goes on from, and
	// took is what they took of the run's bounds.
	continues int
	began     bool // a step was made, in whatever attempt
	took      struct {
		steps, calls int
		tokens, cost int64
	}
}

// past reads what earlier attempts did. After an interruption every recorded result is
// used again. After a failure a playbook begins anew, but what has changed something is
// not done twice; a model goes on from its transcript and is told how it ended.
func (r *Runner) past(ctx context.Context, run ledger.Run, a ledger.Attempt) (history, error) {
	h := history{calls: map[string]loop.Past{}, lasted: map[string]time.Duration{}, skipped: map[string]bool{}, made: map[string]bool{}, wrote: map[string]time.Time{}}
	if a.Number == 1 {
		return h, nil
	}

	attempts, err := r.ledger.Attempts(ctx, run.ID)
	if err != nil {
		return h, err
	}

	calls, err := r.ledger.Calls(ctx, run.ID)
	if err != nil {
		return h, err
	}

	steps, err := r.ledger.Steps(ctx, run.ID)
	if err != nil {
		return h, err
	}

	items, err := r.ledger.ItemsOf(ctx, run.ID)
	if err != nil {
		return h, err
	}

	before := ledger.Attempt{}
	for _, old := range attempts {
		switch {
		case !goesOn(old):
			h.continues = old.Number + 1 // what failed is tried anew, with bounds of its own
		case h.continues == 0:
			h.continues = old.Number
		}
		if old.Number == a.Number-1 {
			before = old
			break
		}
	}

	h.cutOff = before.State == domain.AttemptInterrupted
	for _, c := range calls {
		h.add(c, goesOn(before), items)
		h.made[c.Key] = h.made[c.Key] || len(c.Envelope) > 0
		if c.Effect == domain.EffectDatabase {
			h.wrote[c.Key] = c.StartedAt
		}
	}

	if c, ok := h.unsure(calls); ok {
		h.cut = &c
	}

	for _, c := range calls {
		if c.Attempt >= h.continues {
			h.took.calls++
		}
		if _, known := h.lasted[c.Key]; !known && len(c.Envelope) > 0 && c.State != domain.CallCancelled {
			h.lasted[c.Key] = loop.Between(c.StartedAt, c.FinishedAt)
		}
	}

	h.began = len(steps) > 0
	for _, s := range steps {
		h.took.cost += s.Usage.CostMicroUSD // what failed was paid all the same
		if s.Attempt >= h.continues {
			if s.Within == "" {
				h.took.steps++
			}
			h.took.tokens += s.Usage.TokensIn + s.Usage.TokensOut
		}
	}

	questions := slices.DeleteFunc(items, func(i ledger.Item) bool { return i.Kind != ledger.KindInput })
	return h, h.transcript(steps, calls, before, questions)
}

// goesOn says whether the attempt after this one goes on where it ended: it was cut off, or
// it had asked something.
func goesOn(a ledger.Attempt) bool {
	return a.State == domain.AttemptInterrupted || a.State == domain.AttemptWaiting
}

// answer is what a model hears of the question that ended an attempt.
func answer(i ledger.Item) model.Message {
	text := "Nobody answered your question in time. Go on without an answer if that is possible; else end the run and say what is missing."
	if i.State == ledger.ItemAnswered {
		text = "Your owner answers: " + i.Answer
	}
	return model.Message{Role: model.RoleUser, Text: text}
}

// add keeps what is to be known of one recorded call.
func (h *history) add(c ledger.Call, interrupted bool, items []ledger.Item) {
	switch c.State {
	case domain.CallUncertain:
		h.decide(c, items)
	case domain.CallDone, domain.CallReplayed, domain.CallDeduped:
		if interrupted || c.Effect != domain.EffectRead {
			h.calls[c.Key] = loop.Past{Tool: c.Tool, Envelope: c.Envelope}
		}
	case domain.CallFailed:
		if interrupted {
			h.calls[c.Key] = loop.Past{Tool: c.Tool, Envelope: c.Envelope}
		} else {
			delete(h.calls, c.Key)
		}
	}
}

// transcript rebuilds a model's messages from the record.
func (h *history) transcript(steps []ledger.Step, calls []ledger.Call, before ledger.Attempt, items []ledger.Item) error {
	results := map[string]json.RawMessage{}
	for _, c := range calls {
		if len(c.Envelope) > 0 && c.State != domain.CallCancelled {
			results[c.Key] = c.Envelope
		}
	}

	for _, s := range steps {
		for len(items) > 0 && items[0].Attempt < s.Attempt {
			h.hear(items[0])
			items = items[1:]
		}

		if len(s.Message) == 0 || s.Within != "" {
			continue // a turn that failed, that only finished older calls, or that is none of the run's own
		}

		var m model.Message
		if err := json.Unmarshal(s.Message, &m); err != nil {
			return fmt.Errorf("step %d of attempt %d is damaged in the record: %w", s.Number, s.Attempt, err)
		}
		if m.Text == "" && len(m.Calls) == 0 {
			continue
		}

		h.messages, h.pending = append(h.messages, m), nil
		for _, c := range m.Calls {
			if envelope, ok := results[c.Key]; ok {
				m, err := tool.Answer(c, envelope)
				if err != nil {
					return err
				}
				h.messages = append(h.messages, m)
			} else {
				h.pending = append(h.pending, c)
			}
		}
	}

	for _, i := range items {
		h.hear(i)
	}

	if before.State == domain.AttemptFailed && len(h.messages) > 0 {
		if err := h.closePending(); err != nil {
			return err
		}
		h.messages = append(h.messages, model.Message{Role: model.RoleUser,
			Text: "Your last attempt at this task did not succeed: " + before.Error + "\nWhat your calls did so far stands. Go on from here."})
	}

	return nil
}

// hear adds what became of a question. Calls behind it were not made and do not appear
// (OSA-06); the answer may be a reason not to make them.
func (h *history) hear(i ledger.Item) {
	for at := len(h.messages) - 1; at >= 0 && len(h.pending) > 0; at-- {
		if m := &h.messages[at]; m.Role == model.RoleAssistant {
			m.Calls = slices.DeleteFunc(m.Calls, func(c model.Call) bool {
				return slices.ContainsFunc(h.pending, func(p model.Call) bool { return p.Key == c.Key })
			})
			break
		}
	}
	h.messages, h.pending = append(h.messages, answer(i)), nil
}

// closePending answers the calls that a failed attempt left open: they are not made now.
func (h *history) closePending() error {
	for _, c := range h.pending {
		e := tool.Failure(tool.KindExecutionError, "the attempt ended before this call was done")
		if h.calls[c.Key].Uncertain {
			e = loop.Unknown(c.Name)
		}

		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		h.messages = append(h.messages, model.Message{Role: model.RoleTool, CallID: c.ID, Name: c.Name, Text: string(text)})
	}

	h.pending = nil
	return nil
}
