package loop

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"rouse/agent/loop/memory"
	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/text"
)

const (
	handoffViewBytes = 8 << 10 // bytes of what was done, where that does not ride with each request
	handoffTextLen   = 2000    // characters of what the model said last, and of what it was told
)

// rotate replaces the context, once in an attempt, when what has to stay in it does not fit any
// more: all turns give way to the task, followed by what the model said last, what it was told since, and
// a summary of what it did (AYA-13). The record keeps the turns; an attempt that continues from it rotates again if
// it has to. false says that there is nothing to gain.
func (r *run) rotate() bool {
	if r.rotated || len(r.messages) < 2 {
		return false
	}

	r.rotated = true
	var handoff strings.Builder
	handoff.WriteString("\n\n[Your context was full and starts over here. What you did so far still stands; this is what is left of it.]")
	if words := lastModelText(r.messages); words != "" {
		handoff.WriteString("\nYou said last: " + text.Truncate(words, handoffTextLen))
	}
	for _, told := range toldSince(r.messages[1:]) {
		handoff.WriteString("\nYou were told: " + told)
	}

	if r.phased == nil { // in phases each request has the view anyway
		handoff.WriteString("\n\n" + r.memoryOfTurns().View(memory.Signals{}, min(handoffViewBytes, r.window.budget)))
	}

	task := r.messages[0]
	task.Text += handoff.String()
	// A new window: what was omitted, sent and counted was about the old messages.
	r.messages, r.window = []model.Message{task}, newWindow(r.Options)
	r.addNotice("Your context was full and has started over: read again what you need, in smaller parts, and bring the task to its end.")

	return true
}

// lastModelText is what the model said last.
func lastModelText(history []model.Message) string {
	for _, m := range slices.Backward(history) {
		if text := strings.TrimSpace(m.Text); m.Role == model.RoleAssistant && text != "" {
			return text
		}
	}
	return ""
}

// toldSince is what a model was told after its task, as the answers of its owner, in their order: of much the newest.
func toldSince(history []model.Message) (told []string) {
	left := handoffTextLen
	for _, m := range slices.Backward(history) {
		words := strings.TrimSpace(m.Text)
		if m.Role != model.RoleUser || words == "" {
			continue
		}
		if left <= 0 {
			break
		}

		words = text.Truncate(words, left)
		left -= len(words)
		told = append(told, words)
	}

	slices.Reverse(told)
	return told
}

// memoryOfTurns builds a working memory from the history of a run that has none.
func (r *run) memoryOfTurns() *memory.Memory {
	m := memory.New(r.Board)
	askedCalls := map[string]model.Call{}
	for _, message := range r.messages {
		for _, c := range message.Calls {
			askedCalls[c.ID] = c
		}

		c, known := askedCalls[message.CallID]
		var e tool.Envelope
		if known && json.Unmarshal([]byte(message.Text), &e) == nil {
			m.RecordAction(r.memoryAction(c, e))
		}
	}

	return m
}

// makeRoom shortens the next request after the model's server has refused one as too long: the window is smaller than configured, or
// than assumed. It returns false if nothing can be left out. The server's own numbers are used if its refusal has them, else half of
// the window is a guess.
func (r *run) makeRoom(failure error) bool {
	var e *model.Error
	if !errors.As(failure, &e) || e.Kind != model.KindContextOverflow {
		return false
	}

	before := r.requestTokens()
	if r.Window <= 0 {
		r.Window = DefaultWindow
	}
	if e.Window <= 0 {
		r.Window /= 2
		return r.rotate()
	}

	if r.LearnContext != nil {
		r.LearnContext(e.Window)
	}
	room := e.Window
	if e.Needed > before { // this model makes more tokens of the same text than are estimated
		room = max(int(int64(room)*int64(before)/int64(e.Needed)), room/maxTokenError)
	}
	// The request should have fitted in the window that was counted on.
	r.Window = min(room, r.Window*3/4)
	if !r.Registry.IsBrief() && ToolTokens(r.Registry.ModelTools()) > UsableWindow(r.Window)/3 {
		r.Registry = r.Registry.Briefly()
	}

	r.window.budget = newWindow(r.Options).budget
	r.window.sent = 0 // what the refused request had in the cache may change
	if _, fits := r.window.fit(r.messages); fits && r.requestTokens() < before {
		return true
	}
	return r.rotate()
}

// maxTokenError is the greatest factor by which the estimate of a request can be too low. If a server counts more, it counts something
// else than this request.
const maxTokenError = 4

// requestTokens estimates the size of the next request.
func (r *run) requestTokens() int {
	return TextTokens(r.System) + ToolTokens(r.Registry.ModelTools()) + r.window.total(r.messages)
}
