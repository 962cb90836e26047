// Package history reads the results of earlier attempts of a run for the next attempt: results of
// calls, the transcript of a model, and interrupted calls.
package history

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/agentdb/pool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/fileop"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/steps"
)

// History holds the results of earlier attempts of a run.
type History struct {
	Calls      map[string]loop.PriorCall // results by key
	Durations  map[string]time.Duration  // durations of the calls, by key
	BegunAt    map[string]time.Time      // first start of the calls, by key
	MadeAt     map[string]time.Time      // end of the calls that have a result, by key
	Messages   []model.Message           // transcript of the model after the prompt
	Pending    []model.Call              // calls at the end of the transcript without a result
	Skipped    map[string]bool           // keys of calls that the owner decided to skip
	MadeCalls  map[string]bool           // keys of calls that have ended
	TriedAgain map[string]bool           // keys of calls that were last made in a failed attempt
	wroteAt    map[string]time.Time      // start of calls that may have written to the database, by key
	Module     Module                    // for a run that a module executes
	uncertain  *ledger.Call              // call with an unknown effect; optional
	CutOff     bool                      // the last attempt was interrupted
	// Continues is the number of the first attempt that this attempt continues.
	Continues int
	// FailedWith is the error of the last attempt, or "" if it did not fail.
	FailedWith string
	Began      bool // a step of any attempt has used tokens or returned a message
	Answered   bool // a model has answered in any attempt
	// Used is the usage of the attempts since Continues. Its Cost includes all earlier attempts.
	Used struct {
		Steps, Calls int
		Tokens, Cost int64
	}
}

// Read reads the history of a run. After an interruption, every recorded result is used again.
// After a failure, a playbook starts over without repeating changes, and a model continues its
// transcript.
func Read(ctx context.Context, l *ledger.Ledger, specs tool.Specs, run ledger.Run, a ledger.Attempt) (History, error) {
	h := History{Calls: map[string]loop.PriorCall{}, Durations: map[string]time.Duration{}, BegunAt: map[string]time.Time{}, MadeAt: map[string]time.Time{}, Skipped: map[string]bool{}, MadeCalls: map[string]bool{}, TriedAgain: map[string]bool{}, wroteAt: map[string]time.Time{}}
	if a.Number == 1 {
		return h, nil
	}

	attempts, err := l.Runs.Attempts(ctx, run.ID)
	if err != nil {
		return h, err
	}

	calls, err := l.Steps.Calls(ctx, run.ID)
	if err != nil {
		return h, err
	}

	steps, err := l.Steps.List(ctx, run.ID)
	if err != nil {
		return h, err
	}

	items, err := l.Inbox.OfRun(ctx, run.ID)
	if err != nil {
		return h, err
	}

	before := h.addAttempts(attempts, a)
	h.addCalls(calls, items)
	for _, c := range calls { // An undo of the run does not affect calls of a module or calls to a module.
		if of := specs.Find(c.Tool).Requires; of == tool.RequiresModule || of == tool.RequiresOffer {
			delete(h.wroteAt, c.Key)
		}
	}
	h.Module = newModule(calls, items, h.Continues)
	h.addUse(steps, calls)

	questions := slices.DeleteFunc(items, func(i inbox.Item) bool { return i.Kind != inbox.KindInput })
	return h, h.transcript(steps, calls, before, questions)
}

func (h *History) addAttempts(attempts []ledger.Attempt, a ledger.Attempt) (before ledger.Attempt) {
	for _, old := range attempts {
		switch {
		case !continues(old):
			h.Continues = old.Number + 1 // a failed attempt is repeated with bounds of its own
		case h.Continues == 0:
			h.Continues = old.Number
		}
		if old.Number == a.Number-1 {
			before = old
			break
		}
	}

	h.CutOff = before.State == domain.AttemptInterrupted
	if before.State == domain.AttemptFailed {
		h.FailedWith = before.Error
	}
	return before
}

// addCalls adds the recorded calls of earlier attempts.
func (h *History) addCalls(calls []ledger.Call, items []inbox.Item) {
	// The calls are in the order of attempts. A later attempt at a call replaces the earlier
	// result.
	for _, c := range calls {
		// True if the attempt failed, even if a later attempt was interrupted before it reached
		// this call.
		h.TriedAgain[c.Key] = c.Attempt < h.Continues
		h.addCall(c, !h.TriedAgain[c.Key], items)
		h.MadeCalls[c.Key] = h.MadeCalls[c.Key] || len(c.Envelope) > 0
		if c.Effect == domain.EffectDatabase {
			h.wroteAt[c.Key] = c.StartedAt
		}

		if _, known := h.BegunAt[c.Key]; !known {
			h.BegunAt[c.Key] = c.StartedAt
		}
		if _, known := h.MadeAt[c.Key]; len(c.Envelope) > 0 && (c.State != domain.CallReplayed || !known) {
			h.MadeAt[c.Key] = c.FinishedAt
		}

		// Record how long the call itself took, not the replay of its result.
		if _, known := h.Durations[c.Key]; !known && len(c.Envelope) > 0 && c.State != domain.CallCancelled {
			h.Durations[c.Key] = loop.RecordedDuration(c.StartedAt, c.FinishedAt)
		}
	}

	// This needs all calls, because an uncertain call may have ended in a later attempt.
	if c, ok := h.firstUncertain(calls); ok {
		h.uncertain = &c
	}
}

func (h *History) addUse(steps []steps.Step, calls []ledger.Call) {
	for _, c := range calls {
		if c.Attempt >= h.Continues && c.State != domain.CallReplayed { // it was counted when it was made
			h.Used.Calls++
		}
	}

	for _, s := range steps {
		h.Answered = h.Answered || len(s.Message) > 0
		h.Began = h.Began || len(s.Message) > 0 || s.Usage != (ledger.Usage{})
		h.Used.Cost += s.Usage.CostMicroUSD // failed attempts cost money too
		if s.Attempt >= h.Continues {
			if s.ParentCall == "" { // the steps of a reduction do not count as steps of the run
				h.Used.Steps++
			}
			h.Used.Tokens += s.Usage.TokensIn + s.Usage.TokensOut
		}
	}
}

// continues reports whether the next attempt continues this attempt.
func continues(a ledger.Attempt) bool {
	return a.State == domain.AttemptInterrupted || a.State == domain.AttemptWaiting
}

// answerMessage returns the message to the model about the question that ended an attempt.
func answerMessage(i inbox.Item) model.Message {
	text := "Nobody answered your question in time. Go on without an answer if that is possible; else end the run and say what is missing."
	if i.State == inbox.ItemAnswered {
		text = "Your owner answers: " + i.Answer
	}
	return model.Message{Role: model.RoleUser, Text: text}
}

// addCall adds the result of one recorded call.
func (h *History) addCall(c ledger.Call, interrupted bool, items []inbox.Item) {
	switch c.State {
	case domain.CallUncertain:
		h.decideUncertain(c, items)
	case domain.CallDone, domain.CallReplayed, domain.CallDeduped:
		if interrupted || c.Effect != domain.EffectRead {
			h.Calls[c.Key] = loop.PriorCall{Tool: c.Tool, Envelope: c.Envelope}
		}
	case domain.CallFailed:
		if interrupted {
			h.Calls[c.Key] = loop.PriorCall{Tool: c.Tool, Envelope: c.Envelope}
		} else {
			delete(h.Calls, c.Key)
		}
	}
}

func (h *History) transcript(steps []steps.Step, calls []ledger.Call, before ledger.Attempt, items []inbox.Item) error {
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
			continue // a turn that failed, that only ended older calls, or that belongs to a call
		}

		var m model.Message
		if err := json.Unmarshal(s.Message, &m); err != nil {
			return fmt.Errorf("step %d of attempt %d is damaged in the record: %w", s.Number, s.Attempt, err)
		}
		if m.Text == "" && len(m.Calls) == 0 {
			continue
		}

		h.Messages, h.Pending = append(h.Messages, m), nil
		for _, c := range m.Calls {
			if envelope, ok := results[c.Key]; ok {
				m, err := tool.ResultMessage(c, envelope)
				if err != nil {
					return err
				}
				h.Messages = append(h.Messages, m)
			} else {
				h.Pending = append(h.Pending, c)
			}
		}
	}

	for _, i := range items {
		h.addAnswer(i)
	}

	if before.State == domain.AttemptFailed && len(h.Messages) > 0 {
		if err := h.closePending(); err != nil {
			return err
		}
		h.Messages = append(h.Messages, model.Message{Role: model.RoleUser,
			Text: "Your last attempt at this task did not succeed: " + before.Error + "\nWhat your calls did so far stands. Go on from here."})
	}

	return nil
}

// addAnswer adds the answer to a question. The calls after the question were not made, so it
// removes them.
func (h *History) addAnswer(i inbox.Item) {
	for at := len(h.Messages) - 1; at >= 0 && len(h.Pending) > 0; at-- {
		if m := &h.Messages[at]; m.Role == model.RoleAssistant {
			m.Calls = slices.DeleteFunc(m.Calls, func(c model.Call) bool {
				return slices.ContainsFunc(h.Pending, func(p model.Call) bool { return p.Key == c.Key })
			})
			break
		}
	}
	h.Messages, h.Pending = append(h.Messages, answerMessage(i)), nil
}

// closePending adds failed results for the calls that a failed attempt left open. These calls are
// not made.
func (h *History) closePending() error {
	for _, c := range h.Pending {
		e := tool.Failure(tool.KindExecutionError, "the attempt ended before this call was done")
		if h.Calls[c.Key].Uncertain {
			e = loop.UnknownResult(c.Name)
		}

		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		h.Messages = append(h.Messages, model.Message{Role: model.RoleTool, CallID: c.ID, Name: c.Name, Text: string(text)})
	}

	h.Pending = nil
	return nil
}

// Reverted holds changes of earlier attempts that have been undone.
type Reverted struct {
	Undone    time.Time `json:"undone,omitzero"`     // time at which the database writes of the run were undone
	Rewrites  []string  `json:"rewrites,omitempty"`  // keys of calls with undone file changes
	Discarded []string  `json:"discarded,omitempty"` // keys of calls with discarded workspace writes
}

// ReadReverted returns the changes of earlier attempts that have been undone.
func ReadReverted(ctx context.Context, l *ledger.Ledger, databases *pool.Pool, specs tool.Specs, t *plan.Attempt) (s Reverted, err error) {
	if t.Try.Number == 1 {
		return s, nil
	}

	calls, err := l.Steps.Calls(ctx, t.Run.ID)
	if err != nil {
		return s, err
	}
	if s.Rewrites, err = undoneCalls(ctx, l, specs, t.Run, calls); err != nil {
		return s, err
	}
	if s.Discarded, err = l.Workspaces.DiscardedCalls(ctx, t.Run.ID); err != nil {
		return s, err
	}

	s.Undone, err = undoneAt(ctx, databases, t)
	return s, err
}

// undoneAt returns when the database writes of earlier attempts were undone, or the zero time.
func undoneAt(ctx context.Context, databases *pool.Pool, t *plan.Attempt) (time.Time, error) {
	if !t.Agent.Database {
		return time.Time{}, nil
	}

	db, release, err := databases.Get(ctx, t.Run.Agent)
	if err != nil {
		return time.Time{}, err
	}
	defer release()

	return db.UndoneAt(ctx, t.Run.ID)
}

// DropUndone deletes the results of calls with undone effects, and adds a message for the model.
func (h *History) DropUndone(s Reverted) error {
	for _, key := range s.Discarded {
		delete(h.Calls, key)
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

	if len(h.Messages) == 0 {
		return nil
	}
	if err := h.closePending(); err != nil {
		return err
	}

	h.Messages = append(h.Messages, model.Message{Role: model.RoleUser,
		Text: said + ": the results of those calls do not hold any more. Look before you go on, and write again what is needed."})
	return nil
}

// forget deletes the result of a call, so that the call is made again. It also deletes the result
// of the outer call, because otherwise the run would not reach the inner call.
func (h *History) forget(key string) {
	delete(h.Calls, key)
	if outer, within := loop.OuterKey(key); within {
		delete(h.Calls, outer)
	}
}

// undoneCalls returns the keys of calls with undone file changes, unless the run itself undid them.
func undoneCalls(ctx context.Context, l *ledger.Ledger, specs tool.Specs, run ledger.Run, calls []ledger.Call) ([]string, error) {
	ops, err := l.FileOps.List(ctx, fileop.Filter{Run: run.ID, Limit: -1})
	if err != nil {
		return nil, err
	}

	// If an operation was undone during a call of undo, the run itself undid it.
	own := func(op fileop.Op) bool {
		for _, c := range calls {
			if specs.Find(c.Tool).Writes == tool.WritesUndo && !op.UndoneAt.Before(c.StartedAt) && (c.FinishedAt.IsZero() || !op.UndoneAt.After(c.FinishedAt)) {
				return true
			}
		}
		return false
	}

	var out []string
	back := map[string]bool{}
	for _, op := range ops { // newest first: the last operation of a call decides
		if _, known := back[op.Batch]; known {
			continue
		}
		if back[op.Batch] = !op.UndoneAt.IsZero() && !own(op); back[op.Batch] {
			out = append(out, op.Batch)
		}
	}

	return out, nil
}
