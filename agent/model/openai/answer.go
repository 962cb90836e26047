package openai

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"rouse/agent/model"
)

// chunk is a piece of a stream, or a whole answer, as lenient as servers are.
type chunk struct {
	Choices []struct {
		Index        int    `json:"index"`
		Delta        part   `json:"delta"`
		Message      part   `json:"message"` // of an answer that is not streamed
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
		Details    struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Error json.RawMessage `json:"error"`
}

type part struct {
	Content   words      `json:"content"`
	Refusal   string     `json:"refusal"`
	ToolCalls []fragment `json:"tool_calls"`
}

// fragment is a piece of a call.
type fragment struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string    `json:"name"`
		Arguments arguments `json:"arguments"`
	} `json:"function"`
}

// words are text, or a list of parts of which some are text.
type words string

// UnmarshalJSON implements json.Unmarshaler.
func (w *words) UnmarshalJSON(raw []byte) error {
	if raw[0] != '[' {
		return json.Unmarshal(raw, (*string)(w))
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return err
	}
	for _, p := range parts {
		*w += words(p.Text)
	}
	return nil
}

// arguments are a piece of JSON in a string; some servers send the object itself.
type arguments string

// UnmarshalJSON implements json.Unmarshaler.
func (a *arguments) UnmarshalJSON(raw []byte) error {
	if raw[0] == '"' || string(raw) == "null" {
		return json.Unmarshal(raw, (*string)(a))
	}
	*a = arguments(raw)
	return nil
}

// failed says whether the server sends an error where an answer should be.
func (c *chunk) failed() bool { return len(c.Error) > 0 && string(c.Error) != "null" }

// answer is put together from chunks.
type answer struct {
	any     bool // a choice was there
	calls   []*building
	usage   *model.Usage
	finish  string
	refused bool
}

// building is a call that may not be whole yet.
type building struct {
	index    int
	id, name string
	args     strings.Builder
}

// add takes a chunk in and returns its text.
func (a *answer) add(c chunk) string {
	if u := c.Usage; u != nil {
		a.usage = &model.Usage{Input: u.Prompt, Output: u.Completion, Cached: u.Details.Cached}
	}
	var text strings.Builder
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue // one answer was asked for
		}
		a.any = true
		if choice.FinishReason != "" {
			a.finish = strings.ToLower(choice.FinishReason)
		}
		for _, p := range []part{choice.Delta, choice.Message} {
			text.WriteString(string(p.Content) + p.Refusal)
			a.refused = a.refused || p.Refusal != ""
		}
		for _, f := range choice.Delta.ToolCalls {
			a.extend(a.find(f), f)
		}
		for _, f := range choice.Message.ToolCalls {
			a.extend(nil, f)
		}
	}
	return text.String()
}

// extend adds a fragment to a call, or begins one.
func (a *answer) extend(b *building, f fragment) {
	if b == nil {
		b = &building{index: -1}
		if f.Index != nil {
			b.index = *f.Index
		}
		a.calls = append(a.calls, b)
	}
	if b.id == "" {
		b.id = f.ID
	}
	if b.name != f.Function.Name { // some servers repeat it in every fragment
		b.name += f.Function.Name
	}
	b.args.WriteString(string(f.Function.Arguments))
}

// find looks for the call that a fragment goes on. Some servers give every call the same
// index, so that a new id begins a new call; some give no index, and ids and names tell.
func (a *answer) find(f fragment) *building {
	for _, b := range slices.Backward(a.calls) {
		switch {
		case f.Index != nil && *f.Index != b.index:
			continue
		case f.ID != "" && b.id != "" && f.ID != b.id:
			if f.Index != nil {
				return nil
			}
			continue
		case f.Index == nil && f.ID == "" && f.Function.Name != "":
			return nil
		}
		return b
	}
	return nil
}

// finishes in which the calls of an answer are whole, as servers word it.
const finishes = " stop tool_calls tool_call tool_use function_call end_turn stop_sequence eos complete "

// deliver hands on the calls, the usage and the end of an answer that is complete.
func (p *Provider) deliver(a *answer, emit func(model.Event) bool) error {
	stop, err := p.ending(a)
	if err != nil {
		return err
	}
	calls, err := p.finished(a)
	if err != nil {
		return err
	}
	for i := range calls {
		if !emit(model.Event{Call: &calls[i]}) {
			return errLeft
		}
	}
	if a.usage != nil && !emit(model.Event{Usage: a.usage}) {
		return errLeft
	}
	if !emit(model.Event{Stop: stop}) {
		return errLeft
	}
	return nil
}

// ending says why the model stopped, or that it should not have.
func (p *Provider) ending(a *answer) (string, error) {
	whole := strings.Contains(finishes, " "+a.finish+" ")
	switch {
	case a.finish == "":
		return "", p.fault(model.KindTruncated, true, "the answer of the model %s at %s ended before it was complete", p.o.Model, p.place)
	case a.finish == "error" || a.finish == "abort" || a.finish == "network_error" || a.finish == "insufficient_system_resource":
		return "", p.fault(model.KindUnavailable, true, "the model %s at %s gave up in the middle of its answer (%s)", p.o.Model, p.place, a.finish)
	case (a.finish == "length" || a.finish == "max_tokens") && len(a.calls) > 0:
		// The same request would end the same way: this costs tokens, and is not repeated.
		return "", p.fault(model.KindTruncated, false, "the answer of the model %s was cut off inside a call because it grew too long; raise max_output", p.o.Model)
	case a.finish == "max_tokens":
		return model.StopLength, nil
	case len(a.calls) > 0 && a.finish == model.StopFilter:
		return "", p.fault(model.KindBadRequest, false, "the provider of the model %s withheld a part of its answer (%s)", p.o.Model, a.finish)
	case len(a.calls) > 0 && !whole:
		return "", p.fault(model.KindTruncated, true, "the model %s at %s stopped inside a call (%q)", p.o.Model, p.place, p.scrub.Replace(a.finish))
	case len(a.calls) > 0:
		return model.StopCalls, nil
	case a.refused:
		return model.StopRefusal, nil
	case whole:
		return model.StopDone, nil
	}
	return a.finish, nil
}

// finished gives the calls of a complete answer, or an error when one of them is not.
func (p *Provider) finished(a *answer) ([]model.Call, error) {
	calls := make([]model.Call, 0, len(a.calls))
	seen := map[string]bool{}
	for _, b := range a.calls {
		args, ok := object(b.args.String())
		switch {
		case b.name == "":
			return nil, p.fault(model.KindNonsense, true, "the model %s at %s made a call without a name", p.o.Model, p.place)
		case !ok:
			return nil, p.fault(model.KindNonsense, true, "the model %s at %s called %s with arguments that are not a JSON object", p.o.Model, p.place, p.scrub.Replace(b.name))
		}
		if b.id == "" || seen[b.id] { // results could not be told apart
			b.id = mint()
		}
		seen[b.id] = true
		calls = append(calls, model.Call{ID: b.id, Name: b.name, Args: args})
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
