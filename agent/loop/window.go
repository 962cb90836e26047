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

// DefaultWindow is the assumed context size of a model without a configured one, in tokens.
const DefaultWindow = 128_000

const (
	defaultResponse = 4096 // tokens reserved for an answer
	keptTurns       = 3    // last turns, which are never omitted with their results
	bytesPerToken   = 4    // approximate
	perMessage      = 4    // tokens of a message in addition to its text
	perImage        = 1600 // tokens of an image; about the maximum that providers count
)

// omittedNote contains no count, so that it stays the same when more is omitted.
const omittedNote = "\n\n[Earlier turns of this task were left out to fit the context. What their calls did still stands.]"

// window selects the part of the history that a model sees. It does not change messages that were
// sent or omitted, because providers cache the beginning of a request.
type window struct {
	budget    int            // tokens available for the history
	sent      int            // number of messages that have been sent unchanged
	extra     int            // tokens sent in addition to the history
	tools     *tool.Registry // tools that define how results are cut
	listed    int            // tokens of tools included in the budget
	omitted   map[int]bool   // indexes of omitted messages
	shortened map[int]string // shortened results by message index
	warned    bool           // the model has been told that its context is nearly full
	counted   int            // number of messages included in sum
	sum       int            // tokens
}

// newWindow returns a window with the part of the model's context that is available for the
// history.
func newWindow(o Options) *window {
	listed := ToolTokens(o.Registry.ModelTools())
	budget := HistoryRoom(o.Window, o.MaxOutput, TextTokens(o.System)+listed)
	return &window{budget: budget, listed: listed, tools: o.Registry, omitted: map[int]bool{}, shortened: map[int]string{}}
}

// HistoryRoom returns the number of tokens available for the history. beside is the size of the
// system prompt and the tools. Zero maxOutput means no configured limit.
func HistoryRoom(window, maxOutput, beside int) int {
	usable := UsableWindow(window)
	if maxOutput <= 0 { // the safety margin also has room for an answer
		maxOutput = max(defaultResponse, answerLimit(window, 0)-(cmp.Or(max(window, 0), DefaultWindow)-usable))
	}

	// The maximum answer of some models would leave no room for the history.
	return usable - beside - min(maxOutput, usable/4)
}

// maxAnswer is the default maximum length of an answer in a large context, in tokens.
const maxAnswer = 16_000

// answerLimit returns the maximum length of an answer in tokens: the configured one, or a quarter
// of the context but at most maxAnswer.
func answerLimit(window, maxOutput int) int {
	if maxOutput > 0 {
		return maxOutput
	}
	return min(cmp.Or(max(window, 0), DefaultWindow)/4, maxAnswer)
}

// TextTokens estimates the number of tokens of a text.
func TextTokens(text string) int { return tokens(len(text)) }

// UsableWindow returns the usable number of tokens of a context. It leaves a margin because
// estimates may be too low.
func UsableWindow(size int) int {
	if size <= 0 {
		size = DefaultWindow
	}
	return size * 85 / 100
}

// ToolTokens estimates the tokens of the tool list in each request.
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

// fit returns the history as the model sees it. It returns false if even the protected part does
// not fit.
func (w *window) fit(history []model.Message) ([]model.Message, bool) {
	total := w.total(history)
	if total > w.budget {
		total = w.compact(history, total)
	}
	w.sent = len(history)
	return w.visible(history), total <= w.budget
}

// total returns the tokens of the history. It counts each message once.
func (w *window) total(history []model.Message) int {
	for ; w.counted < len(history); w.counted++ {
		w.sum += w.cost(w.counted, history[w.counted])
	}
	return w.extra + w.sum + w.loaded()
}

// loaded returns the tokens of tools that were loaded after the budget was computed.
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

// compact makes more room than needed. It first replaces unsent results by one line each, then
// omits the oldest turns.
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

	// Omit whole turns: a provider rejects a call without its result, and a result without its
	// call.
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

// compactProtected makes room in the last turns if there is no other way. It cuts long results,
// then omits older turns, and finally reduces results to one line.
func (w *window) compactProtected(history []model.Message, from int) int {
	total := 0
	for _, share := range protectedShares { // further rounds have no effect once the history fits
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

// shortenAll cuts results to most tokens, or to one line, until the history fits.
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

// shorten returns a result cut to most tokens, or to one line if it cannot be cut that way.
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

// callOf returns the call for the result at i. In phases it returns the inner call of the step. The
// name is empty if the call is not found.
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

// protectedFrom returns the index of the first turn that is never omitted.
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

// holdsInstructions reports whether a message contains a skill, which is never omitted.
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

// nextTurn returns the index of the turn after the one at i. Calls and their results stay together.
func nextTurn(history []model.Message, i int) int {
	for i++; i < len(history) && history[i].Role == model.RoleTool; i++ {
	}
	return i
}

// oneLine returns a replacement for the result of a call, with its status and error.
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

// nearlyFull reports that nine tenths of the budget are used. It reports this once, and again after
// room was made.
func (w *window) nearlyFull(history []model.Message) bool {
	nearlyFull := w.total(history) >= w.budget*9/10
	newly := nearlyFull && !w.warned
	w.warned = nearlyFull
	return newly
}

const (
	handoffViewBytes = 8 << 10 // bytes of the summary of past turns
	handoffTextLen   = 2000    // characters of the model's last text, and of messages from its owner
)

// rotate replaces the context, at most once per attempt. The new context contains the task, the
// model's last text, the owner's later messages and a summary. The record keeps the turns. It
// returns false if the context was not replaced.
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
	// The state of the old window refers to the old messages.
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

// toldSince returns the messages that a model received after its task, such as answers of its
// owner, in order. If they are too long, it keeps the newest.
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

// makeRoom shortens the next request after a server rejected one as too long. It uses the server's
// numbers, or else half of the window. It returns false if the request cannot be shortened.
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
	if e.Needed > before { // the model's tokenizer produces more tokens than estimated
		room = max(int(int64(room)*int64(before)/int64(e.Needed)), room/maxTokenError)
	}
	// The request should have fitted into the assumed window.
	r.Window = min(room, r.Window*3/4)
	if !r.Registry.IsBrief() && ToolTokens(r.Registry.ModelTools()) > UsableWindow(r.Window)/3 {
		r.Registry = r.Registry.Briefly()
	}

	r.window.budget = newWindow(r.Options).budget
	r.window.sent = 0 // the cached beginning of the rejected request may change
	if _, fits := r.window.fit(r.messages); fits && r.requestTokens() < before {
		return true
	}
	return r.rotate()
}

// maxTokenError is the maximum factor by which an estimate of tokens may be too low.
const maxTokenError = 4

func (r *run) requestTokens() int {
	return TextTokens(r.System) + ToolTokens(r.Registry.ModelTools()) + r.window.total(r.messages)
}
