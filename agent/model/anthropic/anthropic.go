package anthropic

import (
	"context"
	"iter"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"

	"rouse/agent/model"
	"rouse/agent/model/wire"
)

// defaultMaxTokens is how much a model may write when nobody says.
const defaultMaxTokens = 32_000

// Options say where a model is. BaseURL is without /v1.
type Options = wire.Endpoint

// Provider is one model on one server. It may be used by many goroutines.
type Provider struct {
	client *wire.Client

	// What was learned about the server.
	maxTokens     atomic.Int64 // the most that it takes; 0: nobody said
	noTemperature atomic.Bool
	noCache       atomic.Bool
}

// New checks the options; it does not reach for the server.
func New(o Options) (*Provider, error) {
	server, err := wire.New(o, wire.Dialect{
		Name: "anthropic", BaseURL: "https://api.anthropic.com", ExampleURL: "https://api.anthropic.com",
		Path: "v1/messages", KeyHeader: "X-Api-Key", Headers: map[string]string{"Anthropic-Version": "2023-06-01"},
		// The limit of 5 MB counts base64.
		Images: wire.ImageLimits{Types: []string{"image/png", "image/jpeg", "image/webp", "image/gif"}, MaxBytes: 5 << 20 / 4 * 3, MaxTotal: 20 << 20},
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
	p             *Provider
	r             model.Request
	sent          sent
	dropThinking  bool  // without what the model thought: the server refuses it
	maxOutput     int64 // for the answer beside this request; 0: nobody said
	pausedContent []any // content of an answer that paused
	blocks        []*block
	usage         usage
}

// EncodeRequest implements wire.Exchange.
func (t *turn) EncodeRequest() (*wire.BodyBuilder, error) {
	t.blocks, t.usage = nil, usage{}
	return t.encode()
}

var (
	maxTokensTooHigh = regexp.MustCompile(`max_tokens: \d+ > (\d+)`)
	contextTooLong   = regexp.MustCompile(`exceed context limit: (\d+) \+ \d+ > (\d+)`)
)

const minOutput = 1024 // tokens: an answer that has less is not worth its request

// Adapt implements wire.Exchange. Each thing is learned once, so the request is repeated
// only so often.
func (t *turn) Adapt(status int, said wire.ServerError) bool {
	if t.p.client.AdaptImages(t.sent.images, said) {
		return true
	}
	if status != http.StatusBadRequest && status != http.StatusUnprocessableEntity {
		return false
	}

	if m := maxTokensTooHigh.FindStringSubmatch(said.Message); m != nil {
		most, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil || most < 1 || most >= t.sent.maxTokens {
			return false
		}
		t.p.maxTokens.Store(most)
		return true
	}

	if m := contextTooLong.FindStringSubmatch(said.Message); m != nil {
		input, err := strconv.ParseInt(m[1], 10, 64)
		limit, err2 := strconv.ParseInt(m[2], 10, 64)
		t.maxOutput = limit - input
		return err == nil && err2 == nil && t.maxOutput >= minOutput && t.maxOutput < t.sent.maxTokens
	}

	switch {
	case t.sent.temperature && strings.Contains(said.Message, "temperature"):
		return !t.p.noTemperature.Swap(true)
	case t.sent.cacheMarked && strings.Contains(said.Message, "cache_control"):
		return !t.p.noCache.Swap(true)
	case t.sent.thinking && !t.dropThinking && (strings.Contains(said.Message, "thinking") || strings.Contains(said.Message, "signature")):
		t.dropThinking = true
		return true
	}

	return false
}

// Hint implements wire.Exchange.
func (t *turn) Hint(model.ErrorKind, int, wire.ServerError) string { return "" }

// stopReasons of stop_reason. A model that pauses is asked for the rest.
var stopReasons = map[string]string{
	"end_turn": model.StopDone, "stop_sequence": model.StopDone, "tool_use": model.StopCalls, "pause_turn": model.StopDone,
	"max_tokens": model.StopLength, "model_context_window_exceeded": model.StopLength, "refusal": model.StopRefusal,
}

// invalidIDChars is what an id that another provider gave may hold, and this one does not take.
var invalidIDChars = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

func toolUseID(of string) string { return invalidIDChars.ReplaceAllString(of, "_") }
