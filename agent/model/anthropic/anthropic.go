package anthropic

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"

	"rouse/agent/model"
	"rouse/agent/model/wire"
)

// defaultMaxTokens is max_tokens if the request has no limit.
const defaultMaxTokens = 32_000

// Options are the address and the configuration of a model. BaseURL does not include /v1.
type Options = wire.Endpoint

// Provider is one model on one server. It is safe for concurrent use.
type Provider struct {
	client *wire.Client

	// Learned from rejected requests; see turn.Adapt.
	maxTokens     atomic.Int64 // limit of the model; 0 means unknown
	noTemperature atomic.Bool
	noCache       atomic.Bool
	noHour        atomic.Bool // the server does not support caching for an hour
}

// New validates the options. It does not connect to the server.
func New(o Options) (*Provider, error) {
	server, err := wire.New(o, wire.Dialect{
		Name: "anthropic", BaseURL: "https://api.anthropic.com", ExampleURL: "https://api.anthropic.com",
		Path: "v1/messages", KeyHeader: "X-Api-Key", Headers: map[string]string{"Anthropic-Version": "2023-06-01"},
		// The limit of 5 MB applies to base64, which is a third longer.
		Images: wire.ImageLimits{Types: []string{"image/png", "image/jpeg", "image/webp", "image/gif"}, MaxBytes: 5 << 20 / 4 * 3, MaxTotal: 20 << 20},
	})
	if err != nil {
		return nil, err
	}

	return &Provider{client: server}, nil
}

// Stream implements model.Provider.
func (p *Provider) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return p.client.Stream(ctx, &turn{p: p, r: r}, r.MaxOutput)
}

type turn struct {
	p             *Provider
	r             model.Request
	sent          sent
	dropThinking  bool  // the server rejects thinking that was sent back
	maxOutput     int64 // tokens that the context leaves for the answer; 0 means unknown
	pausedContent []any // content of a paused answer, sent back to continue it
	blocks        []*block
	usage         usage
}

// EncodeRequest implements wire.Exchange.
func (t *turn) EncodeRequest() any {
	t.blocks, t.usage = nil, usage{}
	return t.encode()
}

var (
	maxTokensTooHigh = regexp.MustCompile(`max_tokens: \d+ > (\d+)`)
	contextTooLong   = regexp.MustCompile(`exceed context limit: (\d+) \+ \d+ > (\d+)`)
)

const minOutput = 1024 // tokens; smaller answers are not worth a request

// Adapt implements wire.Exchange. Each limitation is learned once, so that the retries end.
func (t *turn) Adapt(status int, refusal wire.ServerError) bool {
	if t.p.client.AdaptImages(t.sent.images, refusal) {
		return true
	}
	if status != http.StatusBadRequest && status != http.StatusUnprocessableEntity {
		return false
	}

	if m := maxTokensTooHigh.FindStringSubmatch(refusal.Message); m != nil {
		most, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil || most < 1 || most >= t.sent.maxTokens {
			return false
		}
		t.p.maxTokens.Store(most)
		return true
	}

	if m := contextTooLong.FindStringSubmatch(refusal.Message); m != nil {
		input, err := strconv.ParseInt(m[1], 10, 64)
		limit, err2 := strconv.ParseInt(m[2], 10, 64)
		t.maxOutput = limit - input
		return err == nil && err2 == nil && t.maxOutput >= minOutput && t.maxOutput < t.sent.maxTokens
	}

	// Swap reports whether the limitation was already known. If so, a retry does not help.
	switch {
	case t.sent.temperature && strings.Contains(refusal.Message, "temperature"):
		return !t.p.noTemperature.Swap(true)
	case t.sent.hour && (strings.Contains(refusal.Message, "ttl") || strings.Contains(refusal.Message, "cache_control")):
		return !t.p.noHour.Swap(true)
	case t.sent.cacheMarked && strings.Contains(refusal.Message, "cache_control"):
		return !t.p.noCache.Swap(true)
	case t.sent.thinking && !t.dropThinking && (strings.Contains(refusal.Message, "thinking") || strings.Contains(refusal.Message, "signature")):
		t.dropThinking = true
		return true
	}

	return false
}

// stopReasons translates stop_reason. After pause_turn the model is asked to continue.
var stopReasons = map[string]string{
	"end_turn": model.StopDone, "stop_sequence": model.StopDone, "tool_use": model.StopCalls, "pause_turn": model.StopDone,
	"max_tokens": model.StopLength, "model_context_window_exceeded": model.StopLength, "refusal": model.StopRefusal,
}

// invalidIDChars matches characters in ids of other providers that this API rejects.
var invalidIDChars = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

func toolUseID(of string) string { return invalidIDChars.ReplaceAllString(of, "_") }

type listed struct {
	ID       string `json:"id"`
	MaxInput int    `json:"max_input_tokens"`
}

// List implements model.Lister. It first asks for the model by name, because aliases are not in the
// list.
func (p *Provider) List(ctx context.Context) (model.Listing, error) {
	l := p.client.Listing()
	var one listed
	found, err := p.client.Ask(ctx, "v1/models/"+url.PathEscape(p.client.Model()), nil, &one, &l)
	if err != nil {
		return l, err
	}
	if found && one.ID != "" {
		l.Known, l.Has, l.Window = true, true, one.MaxInput
		return l, nil
	}

	return l, p.client.AskNames(ctx, "v1/models?limit=1000", &l)
}
