package ollama

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"strings"

	"rouse/agent/model"
	"rouse/agent/model/wire"
)

// Options say where a model is. BaseURL is without /v1 and /api.
type Options struct {
	wire.Endpoint
	ContextWindow int // tokens; 0 leaves it to the server
}

// Provider is one model on one server. It may be used by many goroutines.
type Provider struct {
	client *wire.Client
	window int
}

// New checks the options; it does not reach for the server.
func New(o Options) (*Provider, error) {
	server, err := wire.New(o.Endpoint, wire.Dialect{
		Name: "ollama", BaseURL: "http://127.0.0.1:11434", ExampleURL: "http://127.0.0.1:11434",
		Path: "api/chat", KeyHeader: "Authorization", KeyPrefix: "Bearer ", JSONLines: true,
		Images: wire.ImageLimits{Types: []string{"image/png", "image/jpeg", "image/webp"}, MaxBytes: model.MaxImage, MaxTotal: model.MaxImage},
	})
	if err != nil {
		return nil, err
	}
	return &Provider{server, o.ContextWindow}, nil
}

// Stream implements model.Provider.
func (p *Provider) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return p.client.Stream(ctx, &turn{p: p, r: r})
}

// turn implements wire.Exchange.
type turn struct {
	p          *Provider
	r          model.Request
	thinking   strings.Builder
	sentImages bool // pictures are in it
}

// EncodeRequest implements wire.Exchange.
func (t *turn) EncodeRequest() (*wire.BodyBuilder, error) { return t.encode() }

// Adapt implements wire.Exchange.
func (t *turn) Adapt(_ int, said wire.ServerError) bool {
	return t.p.client.AdaptImages(t.sentImages, said)
}

// Hint implements wire.Exchange.
func (t *turn) Hint(kind model.ErrorKind, status int, said wire.ServerError) string {
	name := t.p.client.Model()
	switch {
	case status == 0:
		return "is Ollama running there? `ollama serve` starts it"
	case status == http.StatusNotFound && strings.Contains(said.Message, "model"):
		return "to get it, run `ollama pull " + name + "`"
	case kind == model.KindContextOverflow && t.p.window == 0:
		return "set context_window to what the model can read and this machine can hold"
	case kind == model.KindContextOverflow:
		return "raise context_window, if the model can read more and this machine can hold it"
	case strings.Contains(said.Message, "does not support tools"):
		return "an agent needs a model that can call tools"
	}

	return ""
}

// chunk is a line of an answer.
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

// stopReasons of done_reason. load and unload answer no question; the filter is that of a
// model somewhere else, which the server only passes on.
var stopReasons = map[string]string{
	"stop": model.StopDone, "length": model.StopLength, "load": wire.StopServerError, "unload": wire.StopServerError, "content_filter": model.StopFilter,
}

// Decode implements wire.Exchange.
func (t *turn) Decode(f wire.Frame, a *wire.Accumulator) (string, error) {
	var c chunk
	err := json.Unmarshal(f.Data, &c)
	switch {
	case len(c.Error) > 0 && string(c.Error) != "null":
		return "", t.p.client.APIError(f.Data)
	case err != nil:
		return "", t.p.client.InvalidChunk(err)
	}

	t.thinking.WriteString(c.Message.Thinking)
	a.AddPart(wire.Part{Text: len(c.Message.Content)})

	for _, made := range c.Message.ToolCalls {
		call := a.StartCall(len(a.Calls), made.ID, made.Function.Name)
		call.Args.Write(made.Function.Arguments)
		a.AddPart(wire.Part{Call: len(a.Calls)})
	}

	if !c.Done {
		return c.Message.Content, nil
	}

	if c.Reason == "" { // older versions do not say
		c.Reason = "stop"
	}

	a.SetFinishReason(c.Reason, stopReasons)
	a.Usage = wire.NewUsage(c.Input, c.Output, 0, 0)
	if t.thinking.Len() > 0 {
		if raw, err := json.Marshal(t.thinking.String()); err == nil {
			a.Parts = append(a.Parts, wire.Part{Opaque: raw})
		}
	}

	return c.Message.Content, io.EOF
}
