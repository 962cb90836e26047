package loop

import (
	"fmt"
	"slices"
	"strings"

	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/text"
)

const noticePrefix = "[System Notice] "

// The summaries of runs that end with empty answers.
const (
	emptyAnswers    = "The model gave only empty answers and called no tool."
	emptyAfterTools = "The model ended without a word after its tool calls; see what they did."
)

// addNotice adds a notice to the next request only.
func (r *run) addNotice(format string, args ...any) {
	r.staged = append(r.staged, noticePrefix+fmt.Sprintf(format, args...))
}

// orderNotices orders the notices: budget, state, todo list, then the added ones.
func (r *run) orderNotices() {
	if r.Policy.NoModel {
		return
	}

	var first []string
	add := func(format string, args ...any) { first = append(first, noticePrefix+fmt.Sprintf(format, args...)) }
	// The current step is already charged, but the model can still use it.
	if left := r.limit() - r.stepsCharged + 1; r.limit() > 0 && left <= r.Policy.BudgetWarning {
		add("%d of %d steps remaining.", left, r.limit())
	}

	if r.advice != "" {
		add("%s", r.advice)
		r.advice = ""
	}

	if r.Policy.StaleTodoSteps > 0 && r.callHistory.openItems > 0 && r.callHistory.stepsSinceTodo >= r.Policy.StaleTodoSteps {
		add("Your todo list has %d open items and has not been written for %d steps. Bring it up to date, or go on with its next item.", r.callHistory.openItems, r.callHistory.stepsSinceTodo)
		r.callHistory.stepsSinceTodo = 0 // repeat the notice after the same number of steps
	}

	r.callHistory.stepsSinceTodo++
	r.staged = append(first, r.staged...)
}

func (r *run) lookupKnown(t tool.Tool, c model.Call, sig string) (e tool.Envelope, times int, ok bool) {
	r.knownMu.Lock()
	defer r.knownMu.Unlock()
	return r.callHistory.lookup(t, c, sig)
}

func (r *run) learnResult(t tool.Tool, c model.Call, sig string, e tool.Envelope, text, pathState string) {
	r.knownMu.Lock()
	defer r.knownMu.Unlock()
	r.callHistory.record(t, c, sig, e, text, pathState)
}

// adviseKnown sets the advice for a call that was answered with a known result.
func (r *run) adviseKnown(c model.Call, e tool.Envelope, times int) {
	r.knownMu.Lock()
	defer r.knownMu.Unlock()

	switch {
	case times > 0:
		r.advice = fmt.Sprintf("The same %s call has failed %d times: %s It was not made again; change its arguments, or do something else.", c.Name, times, sentence(e.Message))
	case r.Policy.DedupeNotice:
		r.advice = fmt.Sprintf("You have made the same %s call before, and nothing has changed since: its result was given again.", c.Name)
	}
}

func sentence(text string) string {
	text = strings.TrimSpace(text)
	if text == "" || strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}

// advise sets advice about a call for the next request.
func (r *run) advise(c model.Call, e tool.Envelope) {
	t, ok := r.Registry.Lookup(c.Name)
	if !ok {
		return
	}

	if t.Class() == tool.ClassPlan {
		r.callHistory.todoWritten(e)
	}

	if !r.Policy.Advice {
		return
	}

	if advice := r.callHistory.advise(t, c, e); advice != "" {
		r.advice = advice
	}
}

// noteRefusals warns the model before repeated refusals of the same call end the run.
func (r *run) noteRefusals(b *callBatch) {
	if r.Policy.NoModel || r.phased != nil { // without a model the call cannot change; phases have their own limits
		return
	}

	made := make([]model.Call, len(b.calls))
	for i, c := range b.calls {
		made[i], _ = r.phasedCall(c)
	}
	again := r.callHistory.noteRefusals(made, b.envelopes, func(c model.Call) tool.Class {
		t, _ := r.Registry.Lookup(c.Name)
		return t.Class()
	})

	s := r.callHistory.refusal
	if !again || s.times != maxRepeats || !r.Policy.Advice {
		return
	}
	if r.advice == "" {
		r.advice = fmt.Sprintf("The same %s call was refused %d times in a row: %s Change its arguments, or do something else.", s.call.Name, s.times, sentence(s.refusal))
	}
	r.advice += fmt.Sprintf(" After %d refusals in a row the run ends.", maxRefusals)
}

// endedByRefusals ends the run after maxRefusals consecutive refusals of the same call, and reports
// whether it did.
func (r *run) endedByRefusals() bool {
	s := r.callHistory.refusal
	if s.times < maxRefusals {
		return false
	}
	r.end(domain.ExitToolRejected, domain.OutcomeError, "repeated refusal", "the same call was refused %d times in a row: %s %s: %s", s.times, s.call.Name, text.Truncate(text.OneLine(string(s.call.Args)), maxShownArgs), s.refusal)
	return true
}

// noteResults counts repeated results, and warns the model before they end the run.
func (r *run) noteResults(calls []model.Call, envelopes []tool.Envelope) {
	if r.Policy.NoModel || len(calls) == 0 { // a list of calls may repeat one
		return
	}

	made, results := make([]model.Call, 0, len(calls)), make([]tool.Envelope, 0, len(calls))
	for i, c := range calls {
		if one, acts := r.phasedCall(c); acts {
			made, results = append(made, one), append(results, envelopes[i])
		}
	}
	r.callHistory.noteResults(made, results)
	if s := r.callHistory.stuck; s != nil && s.times == maxSameResults/2 && r.Policy.Advice && r.advice == "" {
		r.advice = fmt.Sprintf("The same %s call has had the same result %d times, and nothing else has changed. After %d times the run ends. Do something else, or end the run.", s.call.Name, s.times, maxSameResults)
	}
}

// endedBySameResults ends the run after maxSameResults answers in which a call had the same result.
// It reports whether it did.
func (r *run) endedBySameResults() bool {
	s := r.callHistory.stuck
	if s == nil || s.times < maxSameResults {
		return false
	}
	r.end(domain.ExitEnded, domain.OutcomeError, "repeated call", "the same call had the same result %d times, and nothing else changed: %s %s", s.times, s.call.Name, text.Truncate(text.OneLine(string(s.call.Args)), maxShownArgs))
	return true
}

const maxShownArgs = 300

// nudge asks again after an empty answer, a limited number of times in a row.
func (r *run) nudge() (over bool) {
	r.empty++
	if r.empty <= r.Policy.EmptyRetries {
		r.addNotice("Your last answer was empty. Go on with the task: call a tool, or say the result in words.")
		return false
	}

	r.result.Exit, r.result.Outcome, r.result.Summary = domain.ExitFinalResponse, domain.OutcomeError, emptyAnswers
	if r.toolAnswered { // its calls may have completed the task
		r.result.Exit, r.result.Outcome, r.result.Summary = domain.ExitEmptyResponse, domain.OutcomePartial, emptyAfterTools
	}

	r.result.Error = "the model gave only empty answers"
	if r.phased != nil { // its task is still open
		r.result.Outcome, r.result.Error = domain.OutcomeError, "stuck: the model gave only empty answers"
	}

	return true
}

// messagesWithNotices returns the history with the memory and the notices at the end. They are
// added to the last tool result, because many models do not accept a user message after one.
// Otherwise they become a user message.
func (r *run) messagesWithNotices() []model.Message {
	seen := r.view
	if r.Policy.NoModel {
		seen = r.messages
	}

	text := strings.Join(r.staged, "\n")
	if r.phased != nil {
		text = strings.TrimSpace(r.phased.view + "\n\n" + text)
	}
	if text == "" {
		return seen
	}

	// Clip before each append: the request must not write into the array of the history.
	last := len(seen) - 1
	if last < 0 || seen[last].Role != model.RoleTool {
		return append(slices.Clip(seen), model.Message{Role: model.RoleUser, Text: text})
	}

	m := seen[last]
	m.Text += "\n\n" + text
	return append(slices.Clip(seen[:last]), m)
}
