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
	server *wire.Server
	window int
}

// New checks the options; it does not reach for the server.
func New(o Options) (*Provider, error) {
	server, err := wire.New(o.Endpoint, wire.Dialect{
		Name: "ollama", BaseURL: "http://127.0.0.1:11434", Example: "http://127.0.0.1:11434",
		Path: "api/chat", KeyHeader: "Authorization", KeyPrefix: "Bearer ", Lines: true,
		Images: wire.Images{Types: []string{"image/png", "image/jpeg", "image/webp"}, Each: model.MaxImage, All: model.MaxImage},
	})
	if err != nil {
		return nil, err
	}
	return &Provider{server, o.ContextWindow}, nil
}

// Stream implements model.Provider.
func (p *Provider) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return p.server.Stream(ctx, &turn{p: p, r: r})
}

// turn implements wire.Exchange.
type turn struct {
	p       *Provider
	r       model.Request
	thought strings.Builder
	shown   bool // pictures are in it
}

// Request implements wire.Exchange.
func (t *turn) Request() (*wire.Body, error) { return t.encode() }

// Adapt implements wire.Exchange.
func (t *turn) Adapt(_ int, said wire.Said) bool { return t.p.server.Blind(t.shown, said) }

// Advise implements wire.Exchange.
func (t *turn) Advise(kind model.ErrorKind, status int, said wire.Said) string {
	name := t.p.server.Model()
	switch {
	case status == 0:
		return "is Ollama running there? `ollama serve` starts it"
	case status == http.StatusNotFound && strings.Contains(said.Text, "model"):
		return "to get it, run `ollama pull " + name + "`"
	case kind == model.KindContextOverflow && t.p.window == 0:
		return "set context_window to what the model can read and this machine can hold"
	case kind == model.KindContextOverflow:
		return "raise context_window, if the model can read more and this machine can hold it"
	case strings.Contains(said.Text, "does not support tools"):
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
	Input  wire.Count      `json:"prompt_eval_count"`
	Output wire.Count      `json:"eval_count"`
	Error  json.RawMessage `json:"error"`
}

// meanings of done_reason. load and unload answer no question; the filter is that of a
// model somewhere else, which the server only passes on.
var meanings = map[string]string{
	"stop": model.StopDone, "length": model.StopLength, "load": wire.StopGaveUp, "unload": wire.StopGaveUp, "content_filter": model.StopFilter,
}

// Take implements wire.Exchange.
func (t *turn) Take(f wire.Frame, a *wire.Answer) (string, error) {
	var c chunk
	err := json.Unmarshal(f.Data, &c)
	switch {
	case len(c.Error) > 0 && string(c.Error) != "null":
		return "", t.p.server.Failure(f.Data)
	case err != nil:
		return "", t.p.server.Unreadable(err)
	}

	t.thought.WriteString(c.Message.Thinking)
	a.Keep(wire.Part{Text: len(c.Message.Content)})

	for _, made := range c.Message.ToolCalls {
		call := a.Call(len(a.Calls), made.ID, made.Function.Name)
		call.Args.Write(made.Function.Arguments)
		a.Keep(wire.Part{Call: len(a.Calls)})
	}

	if !c.Done {
		return c.Message.Content, nil
	}

	if c.Reason == "" { // older versions do not say
		c.Reason = "stop"
	}

	a.End(c.Reason, meanings)
	a.Usage = wire.Tokens(c.Input, c.Output, 0, 0)
	if t.thought.Len() > 0 {
		if raw, err := json.Marshal(t.thought.String()); err == nil {
			a.Parts = append(a.Parts, wire.Part{Opaque: raw})
		}
	}

	return c.Message.Content, io.EOF
}
