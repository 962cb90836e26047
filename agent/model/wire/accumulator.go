package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"rouse/agent/model"
	"rouse/internal/text"
)

// Stop reasons that this package turns into a *model.Error.
const (
	StopServerError = "gave up" // the server failed during the answer
	StopInvalidCall = "garbled" // the server could not parse the model's call
)

// Accumulator collects the chunks of one streamed answer.
type Accumulator struct {
	Calls        []*PartialCall
	Usage        *model.Usage
	Parts        []Part // parts to send back to the server; stored only if one is opaque
	FinishReason string // the server's reason in lower case; "" until it sends one
	// StopReason is one of model.Stop… or of the reasons above. It is "" for an unknown
	// FinishReason.
	StopReason string
	Paused     bool // the model must be asked to continue

	answering bool // the server accepted the last request
	textBytes int  // length of its text
	frames    int  // number of frames of all answers of the turn
	maxOutput int  // tokens; 0 means no limit
	stopped   bool // the rest of the answer was not read because it is too long
}

// reported returns the usage of the last request, or zero if the server has not reported it.
func (a *Accumulator) reported() (u model.Usage) {
	if a.Usage != nil {
		u = *a.Usage
	}
	return u
}

// Limits per output token, for servers that ignore max_tokens.
const (
	maxTokenBytes  = 6
	maxTokenFrames = 4
)

// isTooLong reports whether the answer exceeds its limits. The number of frames also limits the
// model's reasoning, which is not part of the text.
func (a *Accumulator) isTooLong() bool {
	if a.maxOutput <= 0 {
		return false
	}

	bytes := a.textBytes
	for _, c := range a.Calls {
		bytes += c.Args.Len()
	}
	return bytes > a.maxOutput*maxTokenBytes || a.frames > a.maxOutput*maxTokenFrames
}

// PartialCall is a call that arrives in fragments.
type PartialCall struct {
	Index    int // index used by the server
	ID, Name string
	Args     strings.Builder
}

// StartCall adds a call. The caller adds the fragments of its arguments to the result.
func (a *Accumulator) StartCall(index int, id, name string) *PartialCall {
	c := &PartialCall{Index: index, ID: id, Name: name}
	a.Calls = append(a.Calls, c)
	return c
}

// SetFinishReason records the reason that the server gave, and translates it with stopReasons.
func (a *Accumulator) SetFinishReason(reason string, stopReasons map[string]string) {
	a.FinishReason = strings.ToLower(reason)
	a.StopReason = stopReasons[a.FinishReason]
}

// deliver emits the calls and the end of a complete answer.
func (c *Client) deliver(a *Accumulator, emit emit) error {
	stop, err := c.stopReason(a)
	if err != nil {
		return err
	}

	calls, err := c.completeCalls(a)
	if err != nil {
		return err
	}

	// Calls are emitted only here, after the server has completed the answer and all of them were
	// parsed.
	for i := range calls {
		if !emit(model.Event{Call: &calls[i]}) {
			return errStopped
		}
	}

	if raw := c.marshalParts(a.Parts); raw != nil && !emit(model.Event{Raw: raw}) {
		return errStopped
	}
	if !emit(model.Event{Stop: stop}) {
		return errStopped
	}

	return nil
}

// stopReason returns the reason why the model stopped, or an error if the answer is unusable.
func (c *Client) stopReason(a *Accumulator) (string, error) {
	calls := len(a.Calls) > 0
	switch {
	case a.FinishReason == "":
		// The stream ended without a finish reason: the connection broke, or the server failed.
		return "", c.newError(model.KindTruncated, true, "the answer of the model %s at %s ended before it was complete", c.endpoint.Model, c.shownURL)
	case a.StopReason == StopServerError || a.Paused:
		return "", c.newError(model.KindUnavailable, true, "the model %s at %s gave up in the middle of its answer (%s)", c.endpoint.Model, c.shownURL, a.FinishReason)
	case a.StopReason == StopInvalidCall:
		e := c.newError(model.KindInvalidResponse, true, "the model %s at %s made a call that cannot be read (%s)", c.endpoint.Model, c.shownURL, a.FinishReason)
		e.Feedback = "Your last answer made a call that cannot be read. Make it again, with its arguments as one JSON object."
		return "", e
	case a.StopReason == model.StopLength && calls:
		// The caller must not repeat the same request: it would end the same way.
		limit := ""
		if a.maxOutput > 0 {
			limit = fmt.Sprintf(" (max_output is %d tokens)", a.maxOutput)
		}
		e := c.newError(model.KindTruncated, false, "the answer of the model %s was cut off inside a call because it grew too long%s; raise max_output", c.endpoint.Model, limit)
		e.Feedback = fmt.Sprintf("Your last answer was cut off inside the call of %s because it was too long. None of its calls was made. Write it in parts: several calls with less in each, for example the beginning of a file first and the rest with appends.",
			c.redactor.Replace(a.Calls[len(a.Calls)-1].Name))
		return "", e
	case (a.StopReason == model.StopFilter || a.StopReason == model.StopRefusal) && calls:
		return "", c.ContentFiltered("a part of its answer", a.FinishReason)
	case a.StopReason == "" && calls:
		// After an unknown reason, calls may be incomplete. Text can be used anyway.
		return "", c.newError(model.KindTruncated, true, "the model %s at %s stopped inside a call (%q)", c.endpoint.Model, c.shownURL, c.redactor.Replace(a.FinishReason))
	case a.StopReason == "":
		return a.FinishReason, nil
	case calls:
		// Gemini and Ollama use the same reason for answers with and without calls.
		return model.StopCalls, nil
	case a.StopReason == model.StopCalls:
		return model.StopDone, nil
	}

	return a.StopReason, nil
}

// completeCalls returns the calls of a complete answer, or an error if a call is unusable.
func (c *Client) completeCalls(a *Accumulator) ([]model.Call, error) {
	calls := make([]model.Call, 0, len(a.Calls))
	seen := map[string]bool{}
	for _, call := range a.Calls {
		args, ok := parseArgs(call.Args.String())
		switch {
		case call.Name == "":
			e := c.newError(model.KindInvalidResponse, true, "the model %s at %s made a call without a name", c.endpoint.Model, c.shownURL)
			e.Feedback = "Your last answer made a call without the name of a tool. Make it again, by its name."
			return nil, e
		case !ok:
			name := c.redactor.Replace(call.Name)
			e := c.newError(model.KindInvalidResponse, true, "the model %s at %s called %s with arguments that are not a JSON object", c.endpoint.Model, c.shownURL, name)
			e.Feedback = fmt.Sprintf("Your last answer called %s with arguments that are not a JSON object (%s): %s\nNone of its calls was made. Make them again, each with its arguments as one JSON object.",
				name, jsonProblem(args), text.Truncate(c.redactor.Replace(string(args)), maxErrorText))
			return nil, e
		}

		if call.ID == "" || seen[call.ID] { // otherwise its result could not be matched
			call.ID = model.NewCallID()
		}

		seen[call.ID] = true
		calls = append(calls, model.Call{ID: call.ID, Name: call.Name, Args: args})
	}

	return calls, nil
}

// parseArgs parses the arguments of a call. Some models encode the JSON object as a string.
func parseArgs(written string) (json.RawMessage, bool) {
	raw := bytes.TrimSpace([]byte(written))
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage("{}"), true
	}

	var inner string
	if raw[0] == '"' && json.Unmarshal(raw, &inner) == nil {
		raw = bytes.TrimSpace([]byte(inner))
	}
	return raw, len(raw) > 0 && raw[0] == '{' && json.Valid(raw)
}

// jsonProblem describes why arguments are not a JSON object.
func jsonProblem(args []byte) string {
	var object map[string]json.RawMessage
	err := json.Unmarshal(args, &object)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return fmt.Sprintf("after %d bytes: %v", syntax.Offset, syntax)
	case err != nil:
		return "it is another kind of value"
	}
	return "it is null"
}

// Part is a part of an answer: text, a call, or opaque data. It refers to the neutral message.
type Part struct {
	Text   int             `json:"text,omitempty"`   // length in bytes
	Call   int             `json:"call,omitempty"`   // number of the call, from 1
	Opaque json.RawMessage `json:"opaque,omitempty"` // belongs to the text or the call, or is a part of its own
}

// providerState is the content of model.Message.Raw.
type providerState struct {
	Provider string `json:"by"`
	Host     string `json:"at,omitempty"` // of the server
	Model    string `json:"model"`
	Parts    []Part `json:"parts"`
}

// AddPart adds a part to the answer. It merges consecutive texts without opaque data.
func (a *Accumulator) AddPart(p Part) {
	if n := len(a.Parts) - 1; p.Call == 0 && p.Opaque == nil && n >= 0 && a.Parts[n].Call == 0 && a.Parts[n].Opaque == nil {
		a.Parts[n].Text += p.Text
		return
	}
	a.Parts = append(a.Parts, p)
}

// marshalParts returns the value for model.Message.Raw, or nil if no part has opaque data.
func (c *Client) marshalParts(parts []Part) json.RawMessage {
	if !slices.ContainsFunc(parts, func(p Part) bool { return p.Opaque != nil }) {
		return nil
	}

	raw, err := json.Marshal(providerState{c.dialect.Name, c.host, c.endpoint.Model, parts})
	if err != nil {
		return nil // cannot happen, because the opaque data came as JSON
	}
	return raw
}

// ContentBlock is a part of a message with its content: text, a call, or only opaque data.
type ContentBlock struct {
	Text   string
	Call   *model.Call
	Opaque json.RawMessage
}

// ContentBlocks returns the parts of a message as its server sent them. If the message was changed
// or came from another server, it returns the text and then the calls, without opaque data.
func (c *Client) ContentBlocks(m model.Message) []ContentBlock {
	var k providerState
	if len(m.Raw) > 0 && json.Unmarshal(m.Raw, &k) == nil && k.Provider == c.dialect.Name && k.Model == c.endpoint.Model && k.Host == c.host {
		if pieces, ok := resolveParts(m, k.Parts); ok {
			return pieces
		}
	}

	var pieces []ContentBlock
	if m.Text != "" {
		pieces = append(pieces, ContentBlock{Text: m.Text})
	}

	for i := range m.Calls {
		pieces = append(pieces, ContentBlock{Call: &m.Calls[i]})
	}

	return pieces
}

// resolveParts looks up the parts in their message. It reports false unless they cover all of it.
func resolveParts(m model.Message, parts []Part) ([]ContentBlock, bool) {
	pieces := make([]ContentBlock, 0, len(parts))
	text, calls := m.Text, 0
	for _, p := range parts {
		switch {
		case p.Call == 0 && p.Text >= 0 && p.Text <= len(text):
			pieces = append(pieces, ContentBlock{Text: text[:p.Text], Opaque: p.Opaque})
			text = text[p.Text:]
		case p.Call == calls+1 && p.Call <= len(m.Calls):
			pieces = append(pieces, ContentBlock{Call: &m.Calls[calls], Opaque: p.Opaque})
			calls++
		default:
			return nil, false
		}
	}

	return pieces, text == "" && calls == len(m.Calls)
}
