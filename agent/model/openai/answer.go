package openai

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"rouse/agent/model"
	"rouse/agent/model/wire"
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
		Prompt     wire.Count `json:"prompt_tokens"`
		Completion wire.Count `json:"completion_tokens"`
		Details    struct {
			Cached wire.Count `json:"cached_tokens"`
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
		return wire.String(raw, (*string)(w))
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
		return wire.String(raw, (*string)(a))
	}
	*a = arguments(raw)
	return nil
}

// failed says whether the server sends an error where an answer should be.
func (c *chunk) failed() bool { return len(c.Error) > 0 && string(c.Error) != "null" }

// endings are the words of servers for why an answer ended. In those that mean StopDone
// or StopCalls its calls are whole.
var endings = map[string]string{
	"stop": model.StopDone, "end_turn": model.StopDone, "stop_sequence": model.StopDone, "eos": model.StopDone, "complete": model.StopDone,
	"tool_calls": model.StopCalls, "tool_call": model.StopCalls, "tool_use": model.StopCalls, "function_call": model.StopCalls,
	"length": model.StopLength, "max_tokens": model.StopLength,
	"content_filter": model.StopFilter,
	"error":          wire.StopGaveUp, "abort": wire.StopGaveUp, "network_error": wire.StopGaveUp, "insufficient_system_resource": wire.StopGaveUp,
}

// Take implements wire.Exchange.
func (t *turn) Take(f wire.Frame, a *wire.Answer) (string, error) {
	if bytes.HasPrefix(f.Data, []byte("[DONE]")) {
		return "", io.EOF
	}

	var c chunk
	err := json.Unmarshal(f.Data, &c)
	switch {
	case f.Event == "error", f.Whole && f.Data[0] == '[', c.failed():
		return "", t.p.server.Failure(f.Data)
	case err != nil:
		return "", t.p.server.Unreadable(err)
	}

	text := t.add(c, a)
	if f.Whole && !t.any {
		return "", t.p.server.Pointless(f.Data)
	}

	return text, nil
}

// add takes a chunk in and returns its text.
func (t *turn) add(c chunk, a *wire.Answer) string {
	if u := c.Usage; u != nil {
		a.Usage = wire.Tokens(u.Prompt, u.Completion, u.Details.Cached, 0)
	}

	var text strings.Builder
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue // one answer was asked for
		}

		t.any = true
		if choice.FinishReason != "" {
			a.End(choice.FinishReason, endings)
		}

		for _, p := range []part{choice.Delta, choice.Message} {
			text.WriteString(string(p.Content) + p.Refusal)
			t.refused = t.refused || p.Refusal != ""
		}

		for _, f := range choice.Delta.ToolCalls {
			extend(a, find(a, f), f)
		}

		for _, f := range choice.Message.ToolCalls {
			extend(a, nil, f)
		}
	}

	if t.refused && a.Finish != "" && len(a.Calls) == 0 && a.Means != model.StopLength && a.Means != wire.StopGaveUp {
		a.Means = model.StopRefusal
	}

	return text.String()
}

// extend adds a fragment to a call, or begins one.
func extend(a *wire.Answer, c *wire.Call, f fragment) {
	if c == nil {
		c = a.Call(-1, "", "")
		if f.Index != nil {
			c.Index = *f.Index
		}
	}

	if c.ID == "" {
		c.ID = f.ID
	}

	if c.Name != f.Function.Name { // some servers repeat it in every fragment
		c.Name += f.Function.Name
	}

	c.Args.WriteString(string(f.Function.Arguments))
}

// find looks for the call that a fragment goes on. Some servers give every call the same
// index, so that a new id begins a new call; some give no index, and ids and names tell.
func find(a *wire.Answer, f fragment) *wire.Call {
	for _, c := range slices.Backward(a.Calls) {
		switch {
		case f.Index != nil && *f.Index != c.Index:
			continue
		case f.ID != "" && c.ID != "" && f.ID != c.ID:
			if f.Index != nil {
				return nil
			}
			continue
		case f.Index == nil && f.ID == "" && f.Function.Name != "":
			return nil
		}
		return c
	}
	return nil
}
