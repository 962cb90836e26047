package ollama

import (
	"encoding/json"
	"io"

	"rouse/agent/model"
	"rouse/agent/model/wire"
	"rouse/internal/jsonread"
)

// chunk is one line of an answer.
type chunk struct {
	Message struct {
		Content   string `json:"content"`
		Thinking  string `json:"thinking"`
		ToolCalls []struct {
			ID       string `json:"id"`
			Function struct {
				Name      string          `json:"name"`
				Arguments json.RawMessage `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	} `json:"message"`
	Done   bool            `json:"done"`
	Reason string          `json:"done_reason"`
	Input  wire.TokenCount `json:"prompt_eval_count"`
	Output wire.TokenCount `json:"eval_count"`
	Error  json.RawMessage `json:"error"`
}

// stopReasons translates done_reason. load and unload come without an answer; the filter is that of
// a cloud model, to which the server only forwards.
var stopReasons = map[string]string{
	"stop": model.StopDone, "length": model.StopLength, "load": wire.StopServerError, "unload": wire.StopServerError, "content_filter": model.StopFilter,
}

// Decode implements wire.Exchange.
func (t *turn) Decode(f wire.Frame, a *wire.Accumulator) (string, error) {
	var c chunk
	err := jsonread.Unmarshal(f.Data, &c)
	switch {
	case len(c.Error) > 0 && string(c.Error) != "null":
		return "", t.p.client.APIError(f.Data)
	case err != nil:
		return "", t.p.client.InvalidChunk(err)
	}

	t.thinking.WriteString(c.Message.Thinking)
	// Also for no text: it is merged with the text before, or is an empty part, which is not sent.
	a.AddPart(wire.Part{Text: len(c.Message.Content)})

	for _, made := range c.Message.ToolCalls {
		call := a.StartCall(len(a.Calls), made.ID, made.Function.Name)
		call.Args.Write(made.Function.Arguments)
		a.AddPart(wire.Part{Call: len(a.Calls)})
	}

	if !c.Done {
		return c.Message.Content, nil
	}

	if c.Reason == "" { // older versions leave it out
		c.Reason = "stop"
	}

	a.SetFinishReason(c.Reason, stopReasons)
	a.Usage = wire.NewUsage(c.Input, c.Output, 0, 0)
	if t.thinking.Len() > 0 {
		// Added last: it is one text, which toMessage finds wherever it is among the parts.
		if raw, err := json.Marshal(t.thinking.String()); err == nil {
			a.Parts = append(a.Parts, wire.Part{Opaque: raw})
		}
	}

	return c.Message.Content, io.EOF
}
