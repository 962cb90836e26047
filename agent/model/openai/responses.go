package openai

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"

	"rouse/agent/model"
	"rouse/agent/model/wire"
)

// Responses is one model on one server that speaks OpenAI's Responses API. It may be used
// by many goroutines.
type Responses struct {
	client   *wire.Client
	isOpenAI bool // OpenAI's own, which keeps prefixes by a key

	// What was learned about the server.
	noTemperature atomic.Bool
	noEncrypted   atomic.Bool // it gives no encrypted reasoning along
}

// NewResponses checks the options; it does not reach for the server.
func NewResponses(o Options) (*Responses, error) {
	server, err := wire.New(o, wire.Dialect{
		Name: "openai-responses", BaseURL: "https://api.openai.com/v1", ExampleURL: "https://api.openai.com/v1",
		Path: "responses", KeyHeader: "Authorization", KeyPrefix: "Bearer ", Images: imageLimits,
	})
	if err != nil {
		return nil, err
	}
	return &Responses{client: server, isOpenAI: server.Host() == "api.openai.com"}, nil
}

// Stream implements model.Provider.
func (p *Responses) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return p.client.Stream(ctx, &responsesTurn{p: p, r: r})
}

// responsesTurn is a turn. It implements wire.Exchange.
type responsesTurn struct {
	p             *Responses
	r             model.Request
	sent          responsesRequest
	dropReasoning bool // without what the model thought: the server refuses it
	items         []*outputItem
}

// EncodeRequest implements wire.Exchange.
func (t *responsesTurn) EncodeRequest() (*wire.BodyBuilder, error) {
	t.items = nil
	t.sent = t.encode()
	return wire.JSONBody(t.sent)
}

// Adapt implements wire.Exchange. Each thing is learned once, so the request is repeated
// only so often.
func (t *responsesTurn) Adapt(status int, said wire.ServerError) bool {
	if t.p.client.AdaptImages(t.sent.images, said) {
		return true
	}
	if status != http.StatusBadRequest && status != http.StatusUnprocessableEntity {
		return false
	}

	says := func(word string) bool { return strings.Contains(strings.ToLower(said.Message+" "+said.Code), word) }
	switch {
	case t.sent.Temperature != nil && says("temperature"):
		return !t.p.noTemperature.Swap(true)
	case t.sent.reasoning && !t.dropReasoning && (says("encrypted_content") || says("reasoning")):
		t.dropReasoning = true
		return true
	case t.sent.Include != nil && (says("encrypted") || says("include")):
		return !t.p.noEncrypted.Swap(true)
	}

	return false
}

// Hint implements wire.Exchange.
func (t *responsesTurn) Hint(_ model.ErrorKind, status int, _ wire.ServerError) string {
	if status == http.StatusNotFound && !t.p.isOpenAI {
		return "check base_url and the name of the model; a server that knows only chat completions wants api: chat"
	}
	return ""
}

// cacheKey is the same for all requests of one run: those are kept in one place, where the
// next one finds what it begins with.
func cacheKey(r model.Request) string {
	h := sha256.New()
	h.Write([]byte(r.System))
	if len(r.Messages) > 0 {
		h.Write([]byte("\x00" + r.Messages[0].Text))
	}
	return "rouse-" + hex.EncodeToString(h.Sum(nil)[:12])
}
