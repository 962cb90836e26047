package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// history is what earlier attempts of a run left for the next one.
type history struct {
	calls      map[string]loop.PriorCall // by key
	durations  map[string]time.Duration  // how long the calls took when they were made, by key
	begunAt    map[string]time.Time      // when the calls were first made, by key
	madeAt     map[string]time.Time      // when the calls came to their end that have a result, by key
	messages   []model.Message           // a model's transcript after the prompt
	pending    []model.Call              // asked for at its end, without a result
	skipped    map[string]bool           // keys of calls that their owner said not to make
	madeCalls  map[string]bool           // keys of calls that came to an end
	triedAgain map[string]bool           // keys of calls that were last made in an attempt that failed
	wroteAt    map[string]time.Time      // when calls that may have written the database began, by key
	module     moduleHistory             // of a run that a module answers in
	uncertain  *ledger.Call              // nobody knows what became of it; nil: of all others it is known
	cutOff     bool                      // the last attempt was interrupted
	// continues is the first attempt that this one goes on from, and used is what these attempts
	// used.
	continues int
	// failedWith is why the last attempt failed, "" where it did not.
	failedWith string
	began      bool // a step took or gave anything, in whatever attempt
	answered   bool // a model has answered, in whatever attempt
	used       struct {
		steps, calls int
		tokens, cost int64
	}
}

// past reads what earlier attempts did. After an interruption every recorded result is used again.
// After a failure a playbook starts over without repeating changes, and a model goes on from its
// transcript.
func (r *Runner) past(ctx context.Context, run ledger.Run, a ledger.Attempt) (history, error) {
	h := history{calls: map[string]loop.PriorCall{}, durations: map[string]time.Duration{}, begunAt: map[string]time.Time{}, madeAt: map[string]time.Time{}, skipped: map[string]bool{}, madeCalls: map[string]bool{}, triedAgain: map[string]bool{}, wroteAt: map[string]time.Time{}}
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

	before := h.addAttempts(attempts, a)
	h.addCalls(calls, items)
	for _, c := range calls { // what a module stores is not what an undo takes back, nor is that it was called
		if of := r.Specs().Find(c.Tool).Requires; of == tool.RequiresModule || of == tool.RequiresOffer {
			delete(h.wroteAt, c.Key)
		}
	}
	h.module = newModuleHistory(calls, items, h.continues)
	h.addUse(steps, calls)

	questions := slices.DeleteFunc(items, func(i ledger.Item) bool { return i.Kind != ledger.KindInput })
	return h, h.transcript(steps, calls, before, questions)
}

func (h *history) addAttempts(attempts []ledger.Attempt, a ledger.Attempt) (before ledger.Attempt) {
	for _, old := range attempts {
		switch {
		case !continues(old):
			h.continues = old.Number + 1 // what failed is tried again, with bounds of its own
		case h.continues == 0:
			h.continues = old.Number
		}
		if old.Number == a.Number-1 {
			before = old
			break
		}
	}

	h.cutOff = before.State == domain.AttemptInterrupted
	if before.State == domain.AttemptFailed {
		h.failedWith = before.Error
	}
	return before
}

// addCalls retains the results of earlier calls, and what else has to be known of them.
func (h *history) addCalls(calls []ledger.Call, items []ledger.Item) {
	// In the order of the attempts: a later try at a call replaces what is known of the earlier one.
	for _, c := range calls {
		// Of an attempt that failed, even when the one after it was cut off before it came to this call.
		h.triedAgain[c.Key] = c.Attempt < h.continues
		h.addCall(c, !h.triedAgain[c.Key], items)
		h.madeCalls[c.Key] = h.madeCalls[c.Key] || len(c.Envelope) > 0
		if c.Effect == domain.EffectDatabase {
			h.wroteAt[c.Key] = c.StartedAt
		}

		if _, known := h.begunAt[c.Key]; !known {
			h.begunAt[c.Key] = c.StartedAt
		}
		if _, known := h.madeAt[c.Key]; len(c.Envelope) > 0 && (c.State != domain.CallReplayed || !known) {
			h.madeAt[c.Key] = c.FinishedAt
		}

		// How long it took when it was made, not when its result was replayed.
		if _, known := h.durations[c.Key]; !known && len(c.Envelope) > 0 && c.State != domain.CallCancelled {
			h.durations[c.Key] = loop.RecordedDuration(c.StartedAt, c.FinishedAt)
		}
	}

	// After all calls: an uncertain one may have come to its end in a later attempt.
	if c, ok := h.firstUncertain(calls); ok {
		h.uncertain = &c
	}
}

func (h *history) addUse(steps []ledger.Step, calls []ledger.Call) {
	for _, c := range calls {
		if c.Attempt >= h.continues && c.State != domain.CallReplayed { // it was counted when it was made
			h.used.calls++
		}
	}

	for _, s := range steps {
		h.answered = h.answered || len(s.Message) > 0
		h.began = h.began || len(s.Message) > 0 || s.Usage != (ledger.Usage{})
		h.used.cost += s.Usage.CostMicroUSD // what failed was paid all the same
		if s.Attempt >= h.continues {
			if s.ParentCall == "" { // the steps of a reduction use up none of the run's
				h.used.steps++
			}
			h.used.tokens += s.Usage.TokensIn + s.Usage.TokensOut
		}
	}
}

// continues reports whether the next attempt goes on where this one ended.
func continues(a ledger.Attempt) bool {
	return a.State == domain.AttemptInterrupted || a.State == domain.AttemptWaiting
}

// answerMessage is what a model hears of the question that ended an attempt.
func answerMessage(i ledger.Item) model.Message {
	text := "Nobody answered your question in time. Go on without an answer if that is possible; else end the run and say what is missing."
	if i.State == ledger.ItemAnswered {
		text = "Your owner answers: " + i.Answer
	}
	return model.Message{Role: model.RoleUser, Text: text}
}

// addCall keeps what is to be known of one recorded call.
func (h *history) addCall(c ledger.Call, interrupted bool, items []ledger.Item) {
	switch c.State {
	case domain.CallUncertain:
		h.decideUncertain(c, items)
	case domain.CallDone, domain.CallReplayed, domain.CallDeduped:
		if interrupted || c.Effect != domain.EffectRead {
			h.calls[c.Key] = loop.PriorCall{Tool: c.Tool, Envelope: c.Envelope}
		}
	case domain.CallFailed:
		if interrupted {
			h.calls[c.Key] = loop.PriorCall{Tool: c.Tool, Envelope: c.Envelope}
		} else {
			delete(h.calls, c.Key)
		}
	}
}

func (h *history) transcript(steps []ledger.Step, calls []ledger.Call, before ledger.Attempt, items []ledger.Item) error {
	results := map[string]json.RawMessage{}
	for _, c := range calls {
		if len(c.Envelope) > 0 && c.State != domain.CallCancelled {
			results[c.Key] = c.Envelope
		}
	}

	for _, s := range steps {
		for len(items) > 0 && items[0].Attempt < s.Attempt {
			h.addAnswer(items[0])
			items = items[1:]
		}

		if len(s.Message) == 0 || s.ParentCall != "" {
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
				m, err := tool.ResultMessage(c, envelope)
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
		h.addAnswer(i)
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

// addAnswer adds the answer to a question. Calls behind the question were not made (OSA-06).
func (h *history) addAnswer(i ledger.Item) {
	for at := len(h.messages) - 1; at >= 0 && len(h.pending) > 0; at-- {
		if m := &h.messages[at]; m.Role == model.RoleAssistant {
			m.Calls = slices.DeleteFunc(m.Calls, func(c model.Call) bool {
				return slices.ContainsFunc(h.pending, func(p model.Call) bool { return p.Key == c.Key })
			})
			break
		}
	}
	h.messages, h.pending = append(h.messages, answerMessage(i)), nil
}

// closePending answers the calls that a failed attempt left open: they are not made now.
func (h *history) closePending() error {
	for _, c := range h.pending {
		e := tool.Failure(tool.KindExecutionError, "the attempt ended before this call was done")
		if h.calls[c.Key].Uncertain {
			e = loop.UnknownResult(c.Name)
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

// noteUndone puts into the snapshot what was undone of earlier attempts.
func (r *Runner) noteUndone(ctx context.Context, t *attempt) (err error) {
	if t.Try.Number == 1 {
		return nil
	}

	calls, err := r.ledger.Calls(ctx, t.Run.ID)
	if err != nil {
		return err
	}
	s := &t.found
	if s.Rewrites, err = r.undoneCalls(ctx, t.Run, calls); err != nil {
		return err
	}
	if s.Discarded, err = r.ledger.DiscardedCalls(ctx, t.Run.ID); err != nil {
		return err
	}

	s.Undone, err = r.undoneAt(ctx, t)
	return err
}

// undoneAt returns when the database writes of earlier attempts were undone, or zero.
func (r *Runner) undoneAt(ctx context.Context, t *attempt) (time.Time, error) {
	if !t.Agent.Database {
		return time.Time{}, nil
	}

	db, release, err := r.databases.Get(ctx, t.Run.Agent)
	if err != nil {
		return time.Time{}, err
	}
	defer release()

	return db.UndoneAt(ctx, t.Run.ID)
}

// dropUndone forgets calls whose effects were undone, and tells the model.
func (h *history) dropUndone(s snapshot) error {
	for _, key := range s.Discarded {
		delete(h.calls, key)
	}
	if s.Undone.IsZero() && len(s.Rewrites) == 0 {
		return nil
	}

	said := "What this run had written into files was undone"
	if !s.Undone.IsZero() {
		said = "What this run had written into the database until " + s.Undone.Format("2006-01-02 15:04:05 MST") + " was undone"
		if len(s.Rewrites) > 0 {
			said += ", and what it had written into files"
		}

		for key, at := range h.wroteAt {
			if !at.After(s.Undone) {
				h.forget(key)
			}
		}
	}

	for _, key := range s.Rewrites {
		h.forget(key)
	}

	if len(h.messages) == 0 {
		return nil
	}
	if err := h.closePending(); err != nil {
		return err
	}

	h.messages = append(h.messages, model.Message{Role: model.RoleUser,
		Text: said + ": the results of those calls do not hold any more. Look before you go on, and write again what is needed."})
	return nil
}

// forget has a call made again, and the one that it was made within: else nobody would come to it.
func (h *history) forget(key string) {
	delete(h.calls, key)
	if outer, within := loop.OuterKey(key); within {
		delete(h.calls, outer)
	}
}

// undoneCalls returns the calls whose file changes were undone, except by the run itself.
func (r *Runner) undoneCalls(ctx context.Context, run ledger.Run, calls []ledger.Call) ([]string, error) {
	ops, err := r.ledger.FileOps(ctx, ledger.FileOpFilter{Run: run.ID, Limit: -1})
	if err != nil {
		return nil, err
	}

	// An operation that was undone while a call of undo was on was undone by the run itself.
	own := func(op ledger.FileOp) bool {
		for _, c := range calls {
			if r.Specs().Find(c.Tool).Writes == tool.WritesUndo && !op.UndoneAt.Before(c.StartedAt) && (c.FinishedAt.IsZero() || !op.UndoneAt.After(c.FinishedAt)) {
				return true
			}
		}
		return false
	}

	var out []string
	back := map[string]bool{}
	for _, op := range ops { // the newest first: what was made again since decides
		if _, known := back[op.Batch]; known {
			continue
		}
		if back[op.Batch] = !op.UndoneAt.IsZero() && !own(op); back[op.Batch] {
			out = append(out, op.Batch)
		}
	}

	return out, nil
}
