package ollama

import (
	"context"
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

// New checks the options. It does not connect to the server.
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
	return p.client.Stream(ctx, &turn{p: p, r: r}, r.MaxOutput)
}

// turn implements wire.Exchange.
type turn struct {
	p          *Provider
	r          model.Request
	thinking   strings.Builder
	sentImages bool // in the last request
}

// EncodeRequest implements wire.Exchange.
func (t *turn) EncodeRequest() (*wire.BodyBuilder, error) { return t.encode() }

// Adapt implements wire.Exchange.
func (t *turn) Adapt(_ int, refusal wire.ServerError) bool {
	return t.p.client.AdaptImages(t.sentImages, refusal)
}

// Hint implements wire.Exchange.
func (t *turn) Hint(kind model.ErrorKind, status int, refusal wire.ServerError) string {
	name := t.p.client.Model()
	switch {
	case status == 0:
		return "is Ollama running there? `ollama serve` starts it"
	case status == http.StatusNotFound && strings.Contains(refusal.Message, "model"):
		return "to get it, run `ollama pull " + name + "`"
	case kind == model.KindContextOverflow && t.p.window == 0:
		return "set context_window to what the model can read and this machine can hold"
	case kind == model.KindContextOverflow:
		return "raise context_window, if the model can read more and this machine can hold it"
	case strings.Contains(refusal.Message, "does not support tools"):
		return "an agent needs a model that can call tools"
	}

	return ""
}
