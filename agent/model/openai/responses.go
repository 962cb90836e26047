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

// Responses is one model with OpenAI's Responses API. It is safe for concurrent use.
type Responses struct {
	client   *wire.Client
	isOpenAI bool // the server is OpenAI's own and supports prompt_cache_key

	// Learned from rejected requests; see responsesTurn.Adapt.
	noTemperature atomic.Bool
	noEncrypted   atomic.Bool // the server does not send encrypted reasoning
}

// NewResponses validates the options. It does not connect to the server.
func NewResponses(o Options) (*Responses, error) {
	p := &Responses{}
	var err error
	p.client, err = wire.New(o, wire.Dialect{
		Name: "openai-responses", BaseURL: "https://api.openai.com/v1", ExampleURL: "https://api.openai.com/v1",
		Path: "responses", KeyHeader: "Authorization", KeyPrefix: "Bearer ", Images: imageLimits, Hint: p.hint,
	})
	if err != nil {
		return nil, err
	}
	p.isOpenAI = p.client.Host() == "api.openai.com"
	return p, nil
}

// Stream implements model.Provider.
func (p *Responses) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return p.client.Stream(ctx, &responsesTurn{p: p, r: r}, r.MaxOutput)
}

type responsesTurn struct {
	p             *Responses
	r             model.Request
	sent          responsesRequest
	dropReasoning bool // the server rejects reasoning that was sent back
	items         []*outputItem
}

// EncodeRequest implements wire.Exchange.
func (t *responsesTurn) EncodeRequest() any {
	t.items = nil
	t.sent = t.encode()
	return t.sent
}

// Adapt implements wire.Exchange. Each limitation is learned once, so that the retries end.
func (t *responsesTurn) Adapt(status int, refusal wire.ServerError) bool {
	if t.p.client.AdaptImages(t.sent.images, refusal) {
		return true
	}
	if status != http.StatusBadRequest && status != http.StatusUnprocessableEntity {
		return false
	}

	// The order matters: an error about reasoning that was sent back may also contain "encrypted".
	says := func(word string) bool {
		return strings.Contains(strings.ToLower(refusal.Message+" "+refusal.Code), word)
	}
	switch {
	case t.sent.Temperature != nil && says("temperature"):
		return !t.p.noTemperature.Swap(true)
	case t.sent.reasoning && !t.dropReasoning && (says("encrypted_content") || says("reasoning")):
		t.dropReasoning = true
		return true
	case t.sent.Include != nil && (says("encrypted") || says("include")):
		return !t.p.noEncrypted.Swap(true)
	}

	return t.p.client.AdaptLimit(t.sent.MaxOutputTokens, refusal)
}

func (p *Responses) hint(_ model.ErrorKind, status int, _ wire.ServerError) string {
	if status == http.StatusNotFound && !p.isOpenAI {
		return "check base_url and the name of the model; a server that knows only chat completions wants api: chat"
	}
	return ""
}

// cacheKey returns the same key for all requests of a run. The server uses it to route them to a
// machine that has their prefix in its cache.
func cacheKey(r model.Request) string {
	h := sha256.New() // a key has at most 64 characters and must not disclose the prompt
	h.Write([]byte(r.System))
	if len(r.Messages) > 0 {
		h.Write([]byte("\x00" + r.Messages[0].Text))
	}
	return "rouse-" + hex.EncodeToString(h.Sum(nil)[:12])
}
