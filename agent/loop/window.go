package loop

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"rouse/agent/loop/memory"
	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/text"
)

// DefaultWindow is the assumed context size of a model without a configured one, in tokens (OSA-21).
const DefaultWindow = 128_000

const (
	defaultResponse = 4096 // tokens that are kept free for an answer
	keptTurns       = 3    // the last turns with their results, which are never left out (OSA-22)
	bytesPerToken   = 4    // about
	perMessage      = 4    // tokens that a message costs beside its text
	perImage        = 1600 // tokens that an image costs: about as many as providers count at most
)

// omittedNote has no count, so that it stays the same as more is left out.
const omittedNote = "\n\n[Earlier turns of this task were left out to fit the context. What their calls did still stands.]"

// window decides how much of the history a model sees. It never changes what was sent or left out,
// because providers cache the beginning of a request (OSA-22).
type window struct {
	budget    int            // tokens that the history may have
	sent      int            // messages up to here have been sent as they are
	extra     int            // tokens that are sent beside the history
	tools     *tool.Registry // how their results are cut
	listed    int            // tokens of the tools that budget leaves room for
	omitted   map[int]bool   // messages that are left out
	shortened map[int]string // results that are replaced by a shorter text, which is the value
	warned    bool           // the model has been told that its context is nearly full
	counted   int            // messages up to here are in sum
	sum       int            // tokens
}

// newWindow subtracts what is not history from a model's context.
func newWindow(o Options) *window {
	listed := ToolTokens(o.Registry.ModelTools())
	budget := HistoryRoom(o.Window, o.MaxOutput, TextTokens(o.System)+listed)
	return &window{budget: budget, listed: listed, tools: o.Registry, omitted: map[int]bool{}, shortened: map[int]string{}}
}

// HistoryRoom returns how many tokens of a context the history may have, beside the system prompt,
// the tools and an answer. maxOutput 0 means no configured limit.
func HistoryRoom(window, maxOutput, beside int) int {
	usable := UsableWindow(window)
	if maxOutput <= 0 { // the safety margin has room for an answer, too
		maxOutput = max(defaultResponse, answerLimit(window, 0)-(cmp.Or(max(window, 0), DefaultWindow)-usable))
	}

	// An answer as long as some models allow would leave no room for the history.
	return usable - beside - min(maxOutput, usable/4)
}

// maxAnswer is the default of the greatest length of an answer in tokens, in a large context.
const maxAnswer = 16_000

// answerLimit returns the greatest length of an answer in tokens: the one that is configured, or a quarter of the context.
func answerLimit(window, maxOutput int) int {
	if maxOutput > 0 {
		return maxOutput
	}
	return min(cmp.Or(max(window, 0), DefaultWindow)/4, maxAnswer)
}

// TextTokens estimates how many tokens a text has.
func TextTokens(text string) int { return tokens(len(text)) }

// UsableWindow returns how many tokens of a context are used, because the estimate may be too low.
func UsableWindow(size int) int {
	if size <= 0 {
		size = DefaultWindow
	}
	return size * 85 / 100
}

// ToolTokens estimates how many tokens the list of tools takes of each request.
func ToolTokens(tools []model.Tool) int {
	n := 0
	for _, t := range tools {
		n += tokens(len(t.Name)+len(t.Description)+len(t.Schema)) + perMessage
	}
	return n
}

func tokens(bytes int) int { return (bytes + bytesPerToken - 1) / bytesPerToken }

func size(m model.Message) int {
	n := len(m.Text) + len(m.Raw)
	for _, c := range m.Calls {
		n += len(c.Name) + len(c.Args) + len(c.ID)
	}
	return tokens(n) + perMessage + perImage*len(m.Images)
}

// fit is the history as the model sees it; false when even what must stay does not fit.
func (w *window) fit(history []model.Message) ([]model.Message, bool) {
	total := w.total(history)
	if total > w.budget {
		total = w.compact(history, total)
	}
	w.sent = len(history)
	return w.visible(history), total <= w.budget
}

// total returns what the history costs. Each message is counted once.
func (w *window) total(history []model.Message) int {
	for ; w.counted < len(history); w.counted++ {
		w.sum += w.cost(w.counted, history[w.counted])
	}
	return w.extra + w.sum + w.loaded()
}

// loaded returns the tokens of the tools that were loaded since the budget was made.
func (w *window) loaded() int {
	if w.listed == 0 {
		return 0
	}
	return ToolTokens(w.tools.ModelTools()) - w.listed
}

func (w *window) cost(i int, m model.Message) int {
	if w.omitted[i] {
		return 0
	}

	if text, ok := w.shortened[i]; ok {
		m.Text, m.Images = text, nil
	}

	n := size(m)
	if i == 0 && len(w.omitted) > 0 {
		n += tokens(len(omittedNote))
	}
	return n
}

// compact makes more room than needed. It replaces unsent results by a line each, then leaves out
// the oldest turns.
func (w *window) compact(history []model.Message, total int) int {
	enough := w.budget * 7 / 10
	end := w.protectedFrom(history)
	for i := max(1, w.sent); i < end && total > enough; i++ {
		if _, done := w.shortened[i]; done || history[i].Role != model.RoleTool || holdsInstructions(history[i]) {
			continue
		}

		before := w.cost(i, history[i])
		text := oneLine(history[i])
		if m := (model.Message{Role: model.RoleTool, Text: text}); size(m) < before {
			w.shortened[i] = text
			total += w.cost(i, history[i]) - before
		}
	}
	if total <= w.budget {
		return w.recount(history)
	}

	// Whole turns: a provider refuses a call without its result, and a result without its call.
	for i := 1; i < end && total > enough; {
		next := nextTurn(history, i)
		if slices.ContainsFunc(history[i:next], holdsInstructions) {
			i = next
			continue
		}

		for ; i < next; i++ {
			total -= w.cost(i, history[i])
			w.omitted[i] = true
		}
	}

	return w.compactProtected(history, end)
}

// protectedShares are the divisors of the budget for results of the protected turns.
var protectedShares = []int{2, 4, 8, 16}

// compactProtected makes room in the last turns if nothing else is left. Long results are cut, then
// older turns are left out, and at last results become a line.
func (w *window) compactProtected(history []model.Message, from int) int {
	total := 0
	for _, share := range protectedShares { // those after the one that is enough change nothing
		total = w.shortenAll(history, from, w.budget/share)
	}

	for i, next := from, nextTurn(history, from); total > w.budget && next < len(history); i, next = next, nextTurn(history, next) {
		if slices.ContainsFunc(history[i:next], holdsInstructions) {
			continue
		}

		for ; i < next; i++ {
			w.omitted[i] = true
		}
		total = w.recount(history)
	}

	return w.shortenAll(history, from, 0)
}

// shortenAll cuts results to so many tokens, or to a line, until the history fits.
func (w *window) shortenAll(history []model.Message, from, most int) int {
	total := w.recount(history)
	for i := from; i < len(history) && total > w.budget; i++ {
		if history[i].Role != model.RoleTool || holdsInstructions(history[i]) || w.cost(i, history[i]) <= most {
			continue
		}

		w.shortened[i] = w.shorten(history, i, most)
		total = w.recount(history)
	}

	return total
}

// shorten is a result in so many tokens, or in one line where it cannot be cut so.
func (w *window) shorten(history []model.Message, i, most int) string {
	m := history[i]
	c := callOf(history, i)
	if t, known := w.tools.Lookup(c.Name); known && len(m.Images) == 0 {
		if text, ok := tool.Shorten(m.Text, t.Spec(), c.Args, most*bytesPerToken); ok {
			return text
		}
	}

	if line := oneLine(m); len(line) < len(m.Text) || len(m.Images) > 0 {
		return line
	}
	return m.Text
}

// callOf is the call whose result the message at i is, in phases the one that stands in the step; without a name when there is none.
func callOf(history []model.Message, i int) model.Call {
	for _, m := range slices.Backward(history[:i]) {
		if m.Role != model.RoleAssistant {
			continue
		}

		for _, c := range m.Calls {
			if c.ID != history[i].CallID {
				continue
			}
			if c.Name == memory.StepTool {
				step, _ := memory.Parse(c.Args) // only an act has a tool
				return model.Call{Name: step.Tool, Args: step.Input}
			}
			return c
		}
		return model.Call{}
	}

	return model.Call{}
}

func (w *window) recount(history []model.Message) int {
	w.counted, w.sum = 0, 0
	return w.total(history)
}

// protectedFrom is the index at which the turns begin that are never left out.
func (w *window) protectedFrom(history []model.Message) int {
	turns := 0
	for i, m := range slices.Backward(history) {
		if m.Role == model.RoleAssistant {
			if turns++; turns == keptTurns {
				return i
			}
		}
	}

	return 1
}

// holdsInstructions reports whether a message holds a skill, which is never left out (AGS-12).
func holdsInstructions(m model.Message) bool {
	if m.Role != model.RoleTool || !strings.Contains(m.Text, `"skill_content":`) {
		return false
	}

	var e struct {
		OK     bool `json:"ok"`
		Result struct {
			Content string `json:"skill_content"`
		} `json:"result"`
	}
	return json.Unmarshal([]byte(m.Text), &e) == nil && e.OK && e.Result.Content != ""
}

// nextTurn is the index of the turn after the one at i: calls and their results stay together.
func nextTurn(history []model.Message, i int) int {
	for i++; i < len(history) && history[i].Role == model.RoleTool; i++ {
	}
	return i
}

// oneLine stands for the result of a call: whether it succeeded, and what went wrong.
func oneLine(m model.Message) string {
	var e tool.Envelope
	if json.Unmarshal([]byte(m.Text), &e) != nil {
		return fmt.Sprintf("[the result of %s was left out]", m.Name)
	}

	line := tool.Envelope{OK: e.OK, Tool: e.Tool, Kind: e.Kind, Message: text.Truncate(e.Message, 200), Retryable: e.Retryable}
	if e.OK {
		line = tool.Success(fmt.Sprintf("[the %d bytes of this result were left out; make the call again to see them]", len(e.Result)))
		line.Tool = e.Tool
	}

	text, err := line.MarshalJSON()
	if err != nil {
		return fmt.Sprintf("[the result of %s was left out]", m.Name)
	}

	return string(text)
}

func (w *window) visible(history []model.Message) []model.Message {
	if len(w.omitted) == 0 && len(w.shortened) == 0 {
		return history
	}

	out := make([]model.Message, 0, len(history))
	for i, m := range history {
		if w.omitted[i] {
			continue
		}

		if text, ok := w.shortened[i]; ok {
			m.Text, m.Images = text, nil
		}

		if i == 0 && len(w.omitted) > 0 {
			m.Text += omittedNote
		}

		out = append(out, m)
	}

	return slices.Clip(out)
}

// nearlyFull reports that nine tenths are used: once, and again after room was made.
func (w *window) nearlyFull(history []model.Message) bool {
	nearlyFull := w.total(history) >= w.budget*9/10
	newly := nearlyFull && !w.warned
	w.warned = nearlyFull
	return newly
}

const (
	handoffViewBytes = 8 << 10 // bytes of what was done, where that does not ride with each request
	handoffTextLen   = 2000    // characters of what the model said last, and of what it was told
)

// rotate replaces the context once in an attempt: by the task, what the model said last, what it
// was told since, and a summary (AYA-13). The record keeps the turns. It returns false if nothing
// is gained.
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

// makeRoom shortens the next request after a server refused one as too long. It uses the server's
// numbers, or else half of the window. It returns false if nothing can be left out.
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

// maxTokenError is the greatest factor by which an estimate of tokens can be too low.
const maxTokenError = 4

func (r *run) requestTokens() int {
	return TextTokens(r.System) + ToolTokens(r.Registry.ModelTools()) + r.window.total(r.messages)
}
