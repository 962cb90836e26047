package gemini

import (
	"context"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"

	"rouse/agent/model"
	"rouse/agent/model/wire"
)

// Options say where a model is. BaseURL is without /v1beta.
type Options = wire.Endpoint

// Provider is one model on one server. It may be used by many goroutines.
type Provider struct {
	client         *wire.Client
	needsSignature atomic.Bool // learned: calls must be signed
}

// New checks the options; it does not reach for the server.
func New(o Options) (*Provider, error) {
	name := o.Model
	if !strings.Contains(name, "/") {
		name = "models/" + name
	}

	server, err := wire.New(o, wire.Dialect{
		Name: "gemini", BaseURL: "https://generativelanguage.googleapis.com", ExampleURL: "https://generativelanguage.googleapis.com",
		Path: "v1beta/" + name + ":streamGenerateContent", Query: "alt=sse", KeyHeader: "X-Goog-Api-Key",
		// A request has at most 20 MB, in base64.
		Images: wire.ImageLimits{Types: []string{"image/png", "image/jpeg", "image/webp"}, MaxBytes: 14 << 20, MaxTotal: 14 << 20},
	})
	if err != nil {
		return nil, err
	}

	return &Provider{client: server}, nil
}

// Stream implements model.Provider.
func (p *Provider) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return p.client.Stream(ctx, &turn{p: p, r: r})
}

// turn implements wire.Exchange.
type turn struct {
	p              *Provider
	r              model.Request
	dropSignatures bool // without its own signatures: the server refuses one of them

	sentImages bool // pictures are in it
}

// EncodeRequest implements wire.Exchange.
func (t *turn) EncodeRequest() (*wire.BodyBuilder, error) { return t.encode() }

// Adapt implements wire.Exchange. First what has no signature gets one that is always
// taken; then everything does.
func (t *turn) Adapt(status int, said wire.ServerError) bool {
	if t.p.client.AdaptImages(t.sentImages, said) {
		return true
	}

	text := strings.ToLower(said.Message)
	if status != http.StatusBadRequest || !strings.Contains(text, "thought") || !strings.Contains(text, "signature") {
		return false
	}
	if !t.p.needsSignature.Swap(true) {
		return true
	}

	again := !t.dropSignatures
	t.dropSignatures = true
	return again
}

// Hint implements wire.Exchange.
func (t *turn) Hint(model.ErrorKind, int, wire.ServerError) string { return "" }
