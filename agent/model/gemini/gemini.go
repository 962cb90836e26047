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
	needsSignature atomic.Bool // learned: the API insists on signatures
}

// New checks the options. It does not connect to the server.
func New(o Options) (*Provider, error) {
	name := resource(o.Model)
	server, err := wire.New(o, wire.Dialect{
		Name: "gemini", BaseURL: "https://generativelanguage.googleapis.com", ExampleURL: "https://generativelanguage.googleapis.com",
		Path: "v1beta/" + name + ":streamGenerateContent", Query: "alt=sse", KeyHeader: "X-Goog-Api-Key",
		// A request has at most 20 MB, and base64 makes images a third longer.
		Images: wire.ImageLimits{Types: []string{"image/png", "image/jpeg", "image/webp"}, MaxBytes: 14 << 20, MaxTotal: 14 << 20},
	})
	if err != nil {
		return nil, err
	}

	return &Provider{client: server}, nil
}

// resource is a model's name as a path has it.
func resource(name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return "models/" + name
}

// Stream implements model.Provider.
func (p *Provider) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return p.client.Stream(ctx, &turn{p: p, r: r}, r.MaxOutput)
}

type turn struct {
	p              *Provider
	r              model.Request
	dropSignatures bool // the server refuses one of the model's own signatures

	sentImages bool // in the last request
	sentLimit  int
}

// EncodeRequest implements wire.Exchange.
func (t *turn) EncodeRequest() any { return t.encode() }

// Adapt implements wire.Exchange. First, calls without a signature get the placeholder; then all.
func (t *turn) Adapt(status int, refusal wire.ServerError) bool {
	if t.p.client.AdaptImages(t.sentImages, refusal) {
		return true
	}

	if status == http.StatusBadRequest && t.p.client.AdaptLimit(t.sentLimit, refusal) {
		return true
	}

	text := strings.ToLower(refusal.Message)
	if status != http.StatusBadRequest || !strings.Contains(text, "thought") || !strings.Contains(text, "signature") {
		return false
	}
	if !t.p.needsSignature.Swap(true) {
		return true
	}

	retry := !t.dropSignatures
	t.dropSignatures = true
	return retry
}

type listed struct {
	Name       string `json:"name"` // models/…
	InputLimit int    `json:"inputTokenLimit"`
}

// List implements model.Lister.
func (p *Provider) List(ctx context.Context) (model.Listing, error) {
	l := p.client.Listing()
	var one listed
	found, err := p.client.Ask(ctx, "v1beta/"+resource(p.client.Model()), nil, &one, &l)
	if err != nil {
		return l, err
	}
	if found && one.Name != "" {
		l.Known, l.Has, l.Window = true, true, one.InputLimit
		return l, nil
	}

	return l, p.client.AskNames(ctx, "v1beta/models?pageSize=1000", &l)
}
