package openai

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"rouse/agent/model"
	"rouse/agent/model/wire"
	"rouse/internal/jsonread"
)

// chunk is an event of a stream, or a whole answer. It accepts the deviations of known servers.
type chunk struct {
	Choices []struct {
		Index        int        `json:"index"`
		Delta        choicePart `json:"delta"`
		Message      choicePart `json:"message"` // from a server that does not stream
		FinishReason string     `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		Prompt     wire.TokenCount `json:"prompt_tokens"`
		Completion wire.TokenCount `json:"completion_tokens"`
		Details    struct {
			Cached wire.TokenCount `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Error json.RawMessage `json:"error"`
}

type choicePart struct {
	Content   stringOrParts `json:"content"`
	Refusal   string        `json:"refusal"`
	ToolCalls []callDelta   `json:"tool_calls"`
}

type callDelta struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string    `json:"name"`
		Arguments arguments `json:"arguments"`
	} `json:"function"`
}

// stringOrParts is a string, or the text of a list of parts.
type stringOrParts string

// UnmarshalJSON implements json.Unmarshaler.
func (w *stringOrParts) UnmarshalJSON(raw []byte) error {
	if raw[0] != '[' {
		return wire.UnmarshalString(raw, (*string)(w))
	}

	var parts []struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return err
	}

	for _, p := range parts {
		*w += stringOrParts(p.Text)
	}

	return nil
}

// arguments is a fragment of JSON in a string. Some servers send the object instead.
type arguments string

// UnmarshalJSON implements json.Unmarshaler.
func (a *arguments) UnmarshalJSON(raw []byte) error {
	if raw[0] == '"' || string(raw) == "null" {
		return wire.UnmarshalString(raw, (*string)(a))
	}
	*a = arguments(raw)
	return nil
}

func (c *chunk) failed() bool { return len(c.Error) > 0 && string(c.Error) != "null" }

// stopReasons translates the finish_reason of many kinds of servers.
var stopReasons = map[string]string{
	"stop": model.StopDone, "end_turn": model.StopDone, "stop_sequence": model.StopDone, "eos": model.StopDone, "complete": model.StopDone,
	"tool_calls": model.StopCalls, "tool_call": model.StopCalls, "tool_use": model.StopCalls, "function_call": model.StopCalls,
	"length": model.StopLength, "max_tokens": model.StopLength,
	"content_filter": model.StopFilter,
	"error":          wire.StopServerError, "abort": wire.StopServerError, "network_error": wire.StopServerError, "insufficient_system_resource": wire.StopServerError,
}

// Decode implements wire.Exchange.
func (t *turn) Decode(f wire.Frame, a *wire.Accumulator) (string, error) {
	// [DONE] is not JSON and ends the stream. It is no proof of completeness, because some servers
	// omit it.
	if bytes.HasPrefix(f.Data, []byte("[DONE]")) {
		return "", io.EOF
	}

	var c chunk
	err := jsonread.Unmarshal(f.Data, &c)
	switch {
	case f.Event == "error", f.Document && f.Data[0] == '[', c.failed():
		return "", t.p.client.APIError(f.Data)
	case err != nil:
		return "", t.p.client.InvalidChunk(err)
	}

	text := t.addChunk(c, a)
	if f.Document && !t.hasChoice {
		return "", t.p.client.NoAnswer(f.Data)
	}

	return text, nil
}

func (t *turn) addChunk(c chunk, a *wire.Accumulator) string {
	if u := c.Usage; u != nil {
		a.Usage = wire.NewUsage(u.Prompt, u.Completion, u.Details.Cached, 0)
	}

	var text strings.Builder
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue // only one choice was requested
		}

		t.hasChoice = true
		if choice.FinishReason != "" {
			a.SetFinishReason(choice.FinishReason, stopReasons)
		}

		for _, p := range []choicePart{choice.Delta, choice.Message} {
			text.WriteString(string(p.Content) + p.Refusal)
			t.refused = t.refused || p.Refusal != ""
		}

		// A message has complete calls, which do not continue earlier ones.
		for _, f := range choice.Delta.ToolCalls {
			extendCall(a, findCall(a, f), f)
		}

		for _, f := range choice.Message.ToolCalls {
			extendCall(a, nil, f)
		}
	}

	// A refusal is a separate text with the finish reason "stop".
	if t.refused && a.FinishReason != "" && len(a.Calls) == 0 && a.StopReason != model.StopLength && a.StopReason != wire.StopServerError {
		a.StopReason = model.StopRefusal
	}

	return text.String()
}

// extendCall adds a fragment to the call c, or to a new call if c is nil.
func extendCall(a *wire.Accumulator, c *wire.PartialCall, f callDelta) {
	if c == nil {
		c = a.StartCall(-1, "", "")
		if f.Index != nil {
			c.Index = *f.Index
		}
	}

	if c.ID == "" {
		c.ID = f.ID
	}

	if c.Name != f.Function.Name { // some servers repeat the name in every fragment
		c.Name += f.Function.Name
	}

	c.Args.WriteString(string(f.Function.Arguments))
}

// findCall returns the call that a fragment continues, or nil for a new call. Some servers use the
// same index for every call. If there is no index, ids and names decide.
func findCall(a *wire.Accumulator, f callDelta) *wire.PartialCall {
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
