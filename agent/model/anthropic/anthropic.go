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
	server *wire.Server

	// What was learned about the server.
	maxTokens     atomic.Int64 // the most that it takes; 0: nobody said
	noTemperature atomic.Bool
	noCache       atomic.Bool
}

// New checks the options; it does not reach for the server.
func New(o Options) (*Provider, error) {
	server, err := wire.New(o, wire.Dialect{
		Name: "anthropic", BaseURL: "https://api.anthropic.com", Example: "https://api.anthropic.com",
		Path: "v1/messages", KeyHeader: "X-Api-Key", Header: map[string]string{"Anthropic-Version": "2023-06-01"},
		// The limit of 5 MB counts base64.
		Images: wire.Images{Types: []string{"image/png", "image/jpeg", "image/webp", "image/gif"}, Each: 5 << 20 / 4 * 3, All: 20 << 20},
	})
	if err != nil {
		return nil, err
	}

	return &Provider{server: server}, nil
}

// Stream implements model.Provider.
func (p *Provider) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return p.server.Stream(ctx, &turn{p: p, r: r})
}

// turn implements wire.Exchange.
type turn struct {
	p      *Provider
	r      model.Request
	sent   sent
	bare   bool  // without what the model thought: the server refuses it
	room   int64 // for the answer beside this request; 0: nobody said
	said   []any // content of an answer that paused
	blocks []*block
	use    usage
}

// Request implements wire.Exchange.
func (t *turn) Request() (*wire.Body, error) {
	t.blocks, t.use = nil, usage{}
	return t.encode()
}

var (
	tooMany = regexp.MustCompile(`max_tokens: \d+ > (\d+)`)
	tooLong = regexp.MustCompile(`exceed context limit: (\d+) \+ \d+ > (\d+)`)
)

const leastRoom = 1024 // tokens: an answer that has less is not worth its request

// Adapt implements wire.Exchange. Each thing is learned once, so the request is repeated
// only so often.
func (t *turn) Adapt(status int, said wire.Said) bool {
	if t.p.server.Blind(t.sent.shown, said) {
		return true
	}
	if status != http.StatusBadRequest && status != http.StatusUnprocessableEntity {
		return false
	}

	if m := tooMany.FindStringSubmatch(said.Text); m != nil {
		most, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil || most < 1 || most >= t.sent.maxTokens {
			return false
		}
		t.p.maxTokens.Store(most)
		return true
	}

	if m := tooLong.FindStringSubmatch(said.Text); m != nil {
		input, err := strconv.ParseInt(m[1], 10, 64)
		limit, err2 := strconv.ParseInt(m[2], 10, 64)
		t.room = limit - input
		return err == nil && err2 == nil && t.room >= leastRoom && t.room < t.sent.maxTokens
	}

	switch {
	case t.sent.temperature && strings.Contains(said.Text, "temperature"):
		return !t.p.noTemperature.Swap(true)
	case t.sent.marked && strings.Contains(said.Text, "cache_control"):
		return !t.p.noCache.Swap(true)
	case t.sent.opaque && !t.bare && (strings.Contains(said.Text, "thinking") || strings.Contains(said.Text, "signature")):
		t.bare = true
		return true
	}

	return false
}

// Advise implements wire.Exchange.
func (t *turn) Advise(model.ErrorKind, int, wire.Said) string { return "" }

// meanings of stop_reason. A model that pauses is asked for the rest.
var meanings = map[string]string{
	"end_turn": model.StopDone, "stop_sequence": model.StopDone, "tool_use": model.StopCalls, "pause_turn": model.StopDone,
	"max_tokens": model.StopLength, "model_context_window_exceeded": model.StopLength, "refusal": model.StopRefusal,
}

// unfit is what an id that another provider gave may hold, and this one does not take.
var unfit = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

func id(of string) string { return unfit.ReplaceAllString(of, "_") }
