package history

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/agent/tool/executor"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/text"
)

const maxShownArgs = 2000

// recoveryAnswer returns the owner's answer about an interrupted call, or "".
func recoveryAnswer(c ledger.Call, items []inbox.Item) (answer string) {
	for _, i := range items {
		if i.Kind == inbox.KindRecovery && i.Call == c.Key && i.Attempt > c.Attempt && i.State == inbox.ItemAnswered {
			answer = i.Answer
		}
	}
	return answer
}

// decideUncertain handles a call that was interrupted while it may have changed something.
func (h *History) decideUncertain(c ledger.Call, items []inbox.Item) {
	if len(h.Calls[c.Key].Envelope) > 0 {
		return // the call has a result, and was interrupted while it was replayed
	}

	delete(h.Skipped, c.Key)
	switch recoveryAnswer(c, items) {
	case inbox.RecoveryDone:
		text, err := tool.Success(nil, "an earlier attempt was cut off during this call; its owner says that it took effect, and what it gave is not known").MarshalJSON()
		if err == nil { // always true, because this result can be encoded
			h.Calls[c.Key] = loop.PriorCall{Tool: c.Tool, Envelope: text}
		}
	case inbox.RecoveryAgain:
		h.Calls[c.Key] = loop.PriorCall{Tool: c.Tool, Repeat: true}
	case inbox.RecoverySkip:
		delete(h.Calls, c.Key)
		h.Skipped[c.Key] = true
	default:
		h.Calls[c.Key] = loop.PriorCall{Tool: c.Tool, Uncertain: true}
	}
}

// firstUncertain returns the first call with an unknown effect.
func (h *History) firstUncertain(calls []ledger.Call) (ledger.Call, bool) {
	for _, c := range calls {
		if c.Tool == executor.Name() && c.Attempt < h.Continues { // the job retries it, and the program is told of the failure
			continue
		}
		if c.State == domain.CallUncertain && h.Calls[c.Key].Uncertain {
			return c, true
		}
	}
	return ledger.Call{}, false
}

// AskAboutUncertain handles an interrupted call. A model can check the effect of the call itself,
// so the owner is only informed. Other runs are parked until the owner has answered.
func (h *History) AskAboutUncertain(ctx context.Context, l *ledger.Ledger, specs tool.Specs, t *plan.Attempt) error {
	c := h.uncertain
	if c == nil {
		return nil
	}

	q := inbox.Question{Call: c.Key, Title: t.Asker() + " was cut off"}
	// A module that continues within a call cannot check the effect, and neither can a playbook.
	if t.NeedsModel() && !h.goesOnWithin(c.Key) {
		q.Message = fmt.Sprintf("The process ended or had to end during a call of %s, which began at %s: %s\nWhether it took effect is not known. The model was told so, and that it was not made again.",
			c.Tool, c.StartedAt.UTC().Format(time.RFC3339), shownCall(specs, *c))
		return l.Inbox.AddInfo(ctx, t.Try, q)
	}

	q.Kind, q.Options = inbox.KindRecovery, []string{inbox.RecoveryDone, inbox.RecoveryAgain, inbox.RecoverySkip, inbox.RecoveryStop}
	words := "done if it took effect, again to make it again, skip to go on without it, stop to end the run"
	if t.Detail.Tool != "" || t.Executes() { // no further call follows, so the call cannot be skipped
		q.Options = []string{inbox.RecoveryDone, inbox.RecoveryAgain, inbox.RecoveryStop}
		words = "done if it took effect, again to make it again, stop to end the run"
	}

	q.Message = fmt.Sprintf("The run was cut off during %s, which began at %s: %s %s\nWhether it took effect is not known. Look, and answer: %s.",
		callPlace(t, c.Key), c.StartedAt.UTC().Format(time.RFC3339), c.Tool, shownCall(specs, *c), words)
	return &plan.EarlyEnd{Result: ledger.Result{Wait: &q}}
}

// goesOnWithin reports whether a call was made within a pending call of the model, which will be
// made again.
func (h *History) goesOnWithin(key string) bool {
	outer, within := loop.OuterKey(key)
	return within && slices.ContainsFunc(h.Pending, func(c model.Call) bool {
		return c.Key == outer || strings.HasPrefix(outer, c.Key+".") // call within a step of a phased run
	})
}

func shownCall(specs tool.Specs, c ledger.Call) string {
	call := specs.Find(c.Tool).CallText(c.Args)
	if len(call) <= maxShownArgs {
		return call
	}

	return fmt.Sprintf("%s… (%d bytes; all of them: rouse show %d --json)", text.HeadBytes(call, maxShownArgs), len(call), c.Run)
}

func callPlace(t *plan.Attempt, key string) string {
	if t.Detail.Tool != "" {
		return "the manual call"
	}

	key, within := loop.OuterKey(key)
	switch {
	case t.Executes():
		return "the work of its program"
	case t.NeedsModel():
		return "a call of the skill that the model had called"
	case within:
		return "a call within " + callPlace(t, key)
	}

	var call, item int
	if n, err := fmt.Sscanf(key, "p%d.%d", &call, &item); err == nil && n == 2 {
		return fmt.Sprintf("call %d for item %d", call, item)
	}
	return "call " + strings.TrimPrefix(key, "p")
}
