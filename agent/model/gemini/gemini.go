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

// Options are the address and the configuration of a model. BaseURL does not include /v1beta.
type Options = wire.Endpoint

// Provider is one model on one server. It is safe for concurrent use.
type Provider struct {
	client         *wire.Client
	needsSignature atomic.Bool // learned from a rejected request: the API requires signatures
}

// New validates the options. It does not connect to the server.
func New(o Options) (*Provider, error) {
	name := resource(o.Model)
	server, err := wire.New(o, wire.Dialect{
		Name: "gemini", BaseURL: "https://generativelanguage.googleapis.com", ExampleURL: "https://generativelanguage.googleapis.com",
		Path: "v1beta/" + name + ":streamGenerateContent", Query: "alt=sse", KeyHeader: "X-Goog-Api-Key",
		// The limit of a request is 20 MB, and base64 makes images a third longer.
		Images: wire.ImageLimits{Types: []string{"image/png", "image/jpeg", "image/webp"}, MaxBytes: 14 << 20, MaxTotal: 14 << 20},
	})
	if err != nil {
		return nil, err
	}

	return &Provider{client: server}, nil
}

// resource returns the name of a model as it appears in a path.
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
	dropSignatures bool // the server rejects one of the model's own signatures

	sentImages bool // the last request had images
	sentLimit  int
}

// EncodeRequest implements wire.Exchange.
func (t *turn) EncodeRequest() any { return t.encode() }

// Adapt implements wire.Exchange. It first adds placeholders for missing signatures, and then drops
// all signatures.
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
	Name       string `json:"name"` // for example models/gemini-2.5-pro
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
