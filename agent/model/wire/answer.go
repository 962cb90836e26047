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
	StopGaveUp  = "gave up" // the server's own failure
	StopGarbled = "garbled" // the model made a call that its own server cannot read
)

// Answer is what a server has said so far.
type Answer struct {
	Calls  []*Call
	Usage  *model.Usage
	Parts  []Part // what the server wants back; without any Opaque they are not kept
	Finish string // the server's word for why it stopped; "" when it has not said yet
	Means  string // one of model.Stop… or the above; "" when the word is not known
	Paused bool   // it is to be asked for the rest
}

// Call is put together from its fragments.
type Call struct {
	Index    int // the server's
	ID, Name string
	Args     strings.Builder
}

// Call begins a call.
func (a *Answer) Call(index int, id, name string) *Call {
	c := &Call{Index: index, ID: id, Name: name}
	a.Calls = append(a.Calls, c)
	return c
}

// End notes the server's word for why it stopped.
func (a *Answer) End(word string, meanings map[string]string) {
	a.Finish = strings.ToLower(word)
	a.Means = meanings[a.Finish]
}

// deliver hands on the calls and the end of an answer that is complete.
func (s *Server) deliver(a *Answer, emit emit) error {
	stop, err := s.ending(a)
	if err != nil {
		return err
	}

	calls, err := s.finished(a)
	if err != nil {
		return err
	}

	for i := range calls {
		if !emit(model.Event{Call: &calls[i]}) {
			return errLeft
		}
	}

	if raw := s.keep(a.Parts); raw != nil && !emit(model.Event{Raw: raw}) {
		return errLeft
	}
	if !emit(model.Event{Stop: stop}) {
		return errLeft
	}

	return nil
}

// ending says why the model stopped, or that it should not have.
func (s *Server) ending(a *Answer) (string, error) {
	calls := len(a.Calls) > 0
	switch {
	case a.Finish == "":
		return "", s.fault(model.KindTruncated, true, "the answer of the model %s at %s ended before it was complete", s.e.Model, s.place)
	case a.Means == StopGaveUp || a.Paused:
		return "", s.fault(model.KindUnavailable, true, "the model %s at %s gave up in the middle of its answer (%s)", s.e.Model, s.place, a.Finish)
	case a.Means == StopGarbled:
		return "", s.fault(model.KindNonsense, true, "the model %s at %s made a call that cannot be read (%s)", s.e.Model, s.place, a.Finish)
	case a.Means == model.StopLength && calls:
		// The same request would end the same way: this costs tokens, and is not repeated.
		return "", s.fault(model.KindTruncated, false, "the answer of the model %s was cut off inside a call because it grew too long; raise max_output", s.e.Model)
	case (a.Means == model.StopFilter || a.Means == model.StopRefusal) && calls:
		return "", s.Withheld("a part of its answer", a.Finish)
	case a.Means == "" && calls:
		return "", s.fault(model.KindTruncated, true, "the model %s at %s stopped inside a call (%q)", s.e.Model, s.place, s.scrub.Replace(a.Finish))
	case a.Means == "":
		return a.Finish, nil
	case calls:
		return model.StopCalls, nil
	case a.Means == model.StopCalls:
		return model.StopDone, nil
	}

	return a.Means, nil
}

// finished gives the calls of a complete answer, or an error when one of them is not.
func (s *Server) finished(a *Answer) ([]model.Call, error) {
	calls := make([]model.Call, 0, len(a.Calls))
	seen := map[string]bool{}
	for _, c := range a.Calls {
		args, ok := object(c.Args.String())
		switch {
		case c.Name == "":
			return nil, s.fault(model.KindNonsense, true, "the model %s at %s made a call without a name", s.e.Model, s.place)
		case !ok:
			return nil, s.fault(model.KindNonsense, true, "the model %s at %s called %s with arguments that are not a JSON object", s.e.Model, s.place, s.scrub.Replace(c.Name))
		}

		if c.ID == "" || seen[c.ID] { // results could not be told apart
			c.ID = mint()
		}

		seen[c.ID] = true
		calls = append(calls, model.Call{ID: c.ID, Name: c.Name, Args: args})
	}

	return calls, nil
}

// object reads arguments: nothing at all means none, and some models write their JSON
// into a string once more.
func object(text string) (json.RawMessage, bool) {
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

// mint makes an id for a call that came without a usable one (OSA-09).
func mint() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return "call_" + hex.EncodeToString(b[:])
}

// String reads what encoding/json found to be a string, or null, which leaves into as it is. An
// answer has many that say nothing, or hold nothing that is escaped.
func String(raw []byte, into *string) error {
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

// Count is a number of tokens as a server tells it. Servers leave it out, write it as a
// text, or lie: none of that may cost an answer, or give tokens back to a run.
type Count int64

// UnmarshalJSON implements json.Unmarshaler.
func (c *Count) UnmarshalJSON(raw []byte) error {
	var n float64
	if json.Unmarshal(bytes.Trim(raw, `"`), &n) != nil || math.IsNaN(n) {
		n = 0
	}
	*c = Count(min(max(n, 0), 1<<40))
	return nil
}

// Tokens is what an answer used. What was read from a cache is a part of the input, and so
// is what went into it.
func Tokens(input, output, cached, written Count) *model.Usage {
	u := model.Usage{Input: int64(input), Output: int64(output), Cached: int64(cached), Written: int64(written)}.Sane()
	return &u
}

func sum(a model.Usage, b *model.Usage) model.Usage {
	if b == nil {
		return a
	}
	return model.Usage{Input: a.Input + b.Input, Output: a.Output + b.Output, Cached: a.Cached + b.Cached, Written: a.Written + b.Written}
}
