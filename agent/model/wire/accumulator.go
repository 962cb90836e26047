package wire

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"math"
	"strings"
	"unicode/utf8"

	"rouse/agent/model"
)

// What a server's word for the end of an answer can mean beside the reasons of model.
const (
	StopServerError = "gave up" // the server's own failure
	StopInvalidCall = "garbled" // the model made a call that its own server cannot read
)

// Accumulator is what a server has said so far.
type Accumulator struct {
	Calls        []*PartialCall
	Usage        *model.Usage
	Parts        []Part // what the server wants back; without any Opaque they are not kept
	FinishReason string // the server's word for why it stopped; "" when it has not said yet
	StopReason   string // one of model.Stop… or the above; "" when the word is not known
	Paused       bool   // it is to be asked for the rest
}

// PartialCall is put together from its fragments.
type PartialCall struct {
	Index    int // the server's
	ID, Name string
	Args     strings.Builder
}

// StartCall begins a call.
func (a *Accumulator) StartCall(index int, id, name string) *PartialCall {
	c := &PartialCall{Index: index, ID: id, Name: name}
	a.Calls = append(a.Calls, c)
	return c
}

// SetFinishReason notes the server's word for why it stopped.
func (a *Accumulator) SetFinishReason(word string, meanings map[string]string) {
	a.FinishReason = strings.ToLower(word)
	a.StopReason = meanings[a.FinishReason]
}

// deliver hands on the calls and the end of an answer that is complete.
func (s *Client) deliver(a *Accumulator, emit emit) error {
	stop, err := s.stopReason(a)
	if err != nil {
		return err
	}

	calls, err := s.completeCalls(a)
	if err != nil {
		return err
	}

	for i := range calls {
		if !emit(model.Event{Call: &calls[i]}) {
			return errStopped
		}
	}

	if raw := s.marshalParts(a.Parts); raw != nil && !emit(model.Event{Raw: raw}) {
		return errStopped
	}
	if !emit(model.Event{Stop: stop}) {
		return errStopped
	}

	return nil
}

// stopReason says why the model stopped, or that it should not have.
func (s *Client) stopReason(a *Accumulator) (string, error) {
	calls := len(a.Calls) > 0
	switch {
	case a.FinishReason == "":
		return "", s.newError(model.KindTruncated, true, "the answer of the model %s at %s ended before it was complete", s.endpoint.Model, s.shownURL)
	case a.StopReason == StopServerError || a.Paused:
		return "", s.newError(model.KindUnavailable, true, "the model %s at %s gave up in the middle of its answer (%s)", s.endpoint.Model, s.shownURL, a.FinishReason)
	case a.StopReason == StopInvalidCall:
		return "", s.newError(model.KindNonsense, true, "the model %s at %s made a call that cannot be read (%s)", s.endpoint.Model, s.shownURL, a.FinishReason)
	case a.StopReason == model.StopLength && calls:
		// The same request would end the same way: this costs tokens, and is not repeated.
		return "", s.newError(model.KindTruncated, false, "the answer of the model %s was cut off inside a call because it grew too long; raise max_output", s.endpoint.Model)
	case (a.StopReason == model.StopFilter || a.StopReason == model.StopRefusal) && calls:
		return "", s.ContentFiltered("a part of its answer", a.FinishReason)
	case a.StopReason == "" && calls:
		return "", s.newError(model.KindTruncated, true, "the model %s at %s stopped inside a call (%q)", s.endpoint.Model, s.shownURL, s.redactor.Replace(a.FinishReason))
	case a.StopReason == "":
		return a.FinishReason, nil
	case calls:
		return model.StopCalls, nil
	case a.StopReason == model.StopCalls:
		return model.StopDone, nil
	}

	return a.StopReason, nil
}

// completeCalls gives the calls of a complete answer, or an error when one of them is not.
func (s *Client) completeCalls(a *Accumulator) ([]model.Call, error) {
	calls := make([]model.Call, 0, len(a.Calls))
	seen := map[string]bool{}
	for _, c := range a.Calls {
		args, ok := parseArgs(c.Args.String())
		switch {
		case c.Name == "":
			return nil, s.newError(model.KindNonsense, true, "the model %s at %s made a call without a name", s.endpoint.Model, s.shownURL)
		case !ok:
			return nil, s.newError(model.KindNonsense, true, "the model %s at %s called %s with arguments that are not a JSON object", s.endpoint.Model, s.shownURL, s.redactor.Replace(c.Name))
		}

		if c.ID == "" || seen[c.ID] { // results could not be told apart
			c.ID = newCallID()
		}

		seen[c.ID] = true
		calls = append(calls, model.Call{ID: c.ID, Name: c.Name, Args: args})
	}

	return calls, nil
}

// parseArgs reads arguments: nothing at all means none, and some models write their JSON
// into a string once more.
func parseArgs(text string) (json.RawMessage, bool) {
	raw := bytes.TrimSpace([]byte(text))
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage("{}"), true
	}

	var inner string
	if raw[0] == '"' && json.Unmarshal(raw, &inner) == nil {
		raw = bytes.TrimSpace([]byte(inner))
	}
	return raw, len(raw) > 0 && raw[0] == '{' && json.Valid(raw)
}

// newCallID makes an id for a call that came without a usable one (OSA-09).
func newCallID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return "call_" + hex.EncodeToString(b[:])
}

// UnmarshalString reads what encoding/json found to be a string, or null, which leaves into as it is. An
// answer has many that say nothing, or hold nothing that is escaped.
func UnmarshalString(raw []byte, into *string) error {
	if string(raw) == "null" {
		return nil
	}

	n := len(raw)
	if n < 2 || raw[0] != '"' || bytes.ContainsFunc(raw[1:n-1], func(c rune) bool { return c == '\\' || c == utf8.RuneError }) {
		return json.Unmarshal(raw, into)
	}

	*into = string(raw[1 : n-1])
	return nil
}

// TokenCount is a number of tokens as a server tells it. Servers leave it out, write it as a
// text, or lie: none of that may cost an answer, or give tokens back to a run.
type TokenCount int64

// UnmarshalJSON implements json.Unmarshaler.
func (c *TokenCount) UnmarshalJSON(raw []byte) error {
	var n float64
	if json.Unmarshal(bytes.Trim(raw, `"`), &n) != nil || math.IsNaN(n) {
		n = 0
	}
	*c = TokenCount(min(max(n, 0), 1<<40))
	return nil
}

// NewUsage is what an answer used. What was read from a cache is a part of the input, and so
// is what went into it.
func NewUsage(input, output, cached, written TokenCount) *model.Usage {
	u := model.Usage{Input: int64(input), Output: int64(output), Cached: int64(cached), Written: int64(written)}.Sane()
	return &u
}

func addUsage(a model.Usage, b *model.Usage) model.Usage {
	if b == nil {
		return a
	}
	return model.Usage{Input: a.Input + b.Input, Output: a.Output + b.Output, Cached: a.Cached + b.Cached, Written: a.Written + b.Written}
}
