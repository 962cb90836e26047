package openai

import (
	"context"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"

	"rouse/agent/model"
	"rouse/agent/model/wire"
)

// Options are the address and the configuration of a model. BaseURL includes /v1.
type Options = wire.Endpoint

// Provider is one model on one server. It is safe for concurrent use.
type Provider struct {
	client *wire.Client

	// Learned from rejected requests; see turn.Adapt.
	maxCompletion atomic.Bool // the server requires max_completion_tokens, not max_tokens
	noUsage       atomic.Bool // the server rejects stream_options
}

// imageLimits are OpenAI's limits. Servers with lower limits reject an image with a reason.
var imageLimits = wire.ImageLimits{Types: []string{"image/png", "image/jpeg", "image/webp", "image/gif"}, MaxBytes: model.MaxImage, MaxTotal: model.MaxImage}

// New validates the options. It does not connect to the server.
func New(o Options) (*Provider, error) {
	server, err := wire.New(o, wire.Dialect{
		Name: "openai", BaseURL: "https://api.openai.com/v1", ExampleURL: "http://127.0.0.1:8080/v1",
		Path: "chat/completions", KeyHeader: "Authorization", KeyPrefix: "Bearer ", Images: imageLimits,
	})
	if err != nil {
		return nil, err
	}

	p := &Provider{client: server}
	// OpenAI's reasoning models reject max_tokens, and all its models accept the new name.
	host := server.Host()
	p.maxCompletion.Store(host == "api.openai.com" || strings.HasSuffix(host, ".openai.azure.com"))

	return p, nil
}

// Stream implements model.Provider.
func (p *Provider) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return p.client.Stream(ctx, &turn{p: p, r: r}, r.MaxOutput)
}

type turn struct {
	p          *Provider
	r          model.Request
	sent       request
	sentImages bool // the last request had images
	hasChoice  bool // some chunk had a choice
	refused    bool
}

// EncodeRequest implements wire.Exchange.
func (t *turn) EncodeRequest() any {
	messages, hasImages := t.p.client.FilterImages(t.r.Messages)
	t.sentImages = hasImages
	t.sent = t.p.encode(t.r, wire.MoveToolImages(messages, hasImages))
	return t.sent
}

// Adapt implements wire.Exchange. Each limitation is learned once, so that the retries end.
func (t *turn) Adapt(status int, refusal wire.ServerError) bool {
	if t.p.client.AdaptImages(t.sentImages, refusal) {
		return true
	}
	if status != http.StatusBadRequest && status != http.StatusUnprocessableEntity {
		return false
	}

	switch {
	case t.sent.MaxTokens > 0 && strings.Contains(refusal.Message, "max_completion_tokens") && !strings.Contains(refusal.Message, "too large"):
		t.p.maxCompletion.Store(true)
	case t.sent.StreamOptions != nil && strings.Contains(refusal.Message, "stream_options"):
		t.p.noUsage.Store(true)
	default:
		return t.p.client.AdaptLimit(t.sent.MaxTokens+t.sent.MaxCompletionTokens, refusal)
	}

	return true
}
