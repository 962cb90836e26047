package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/hashicorp/go-retryablehttp"

	"rouse/agent/model"
)

const (
	defaultBaseURL = "https://api.openai.com/v1"
	defaultTimeout = 10 * time.Minute
	defaultIdle    = 2 * time.Minute
	maxRefusal     = 64 << 10 // bytes that are read of an error
)

// Options say where a model is.
type Options struct {
	BaseURL string // with its /v1; "" is OpenAI's
	APIKey  string
	Model   string
	Headers map[string]string
	Timeout time.Duration // of one turn, with its retries; 0 means 10m
	Idle    time.Duration // without a byte from the server; 0 means 2m
	Logger  *slog.Logger
}

// Provider is one model on one server. It may be used by many goroutines.
type Provider struct {
	o      Options
	url    string // of the endpoint
	place  string // BaseURL as people may see it: without credentials and query
	client *http.Client
	scrub  *strings.Replacer

	// What was learned about the server.
	maxCompletion atomic.Bool // it wants max_completion_tokens, not max_tokens
	noUsage       atomic.Bool // it refuses stream_options
}

// New checks the options; it does not reach for the server.
func New(o Options) (*Provider, error) {
	return newProvider(o, retryablehttp.NewClient().HTTPClient.Transport)
}

func newProvider(o Options, base http.RoundTripper) (*Provider, error) {
	if o.Model == "" {
		return nil, errors.New("openai: no model was named; set model to a name that the server knows")
	}
	if o.BaseURL == "" {
		o.BaseURL = defaultBaseURL
	}
	u, err := url.Parse(o.BaseURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, errors.New("openai: base_url is not an http address like http://127.0.0.1:8080/v1")
	}
	o.APIKey = strings.TrimSpace(o.APIKey)
	for name, v := range o.Headers {
		if strings.ContainsFunc(v, unicode.IsControl) {
			return nil, fmt.Errorf("openai: the header %s holds a line break or another control character", name)
		}
	}
	if strings.ContainsFunc(o.APIKey, unicode.IsControl) {
		return nil, errors.New("openai: api_key holds a line break or another control character")
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Idle <= 0 {
		o.Idle = defaultIdle
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Provider{o: o, url: u.JoinPath("chat/completions").String(), scrub: scrubber(o, u)}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	p.place = u.String()
	p.client = p.newClient(base)
	// OpenAI's reasoning models refuse max_tokens, and all its models take the new name.
	host := u.Hostname()
	p.maxCompletion.Store(host == "api.openai.com" || strings.HasSuffix(host, ".openai.azure.com"))
	return p, nil
}

// errLeft says that whoever reads the events wants no more of them.
var errLeft = errors.New("the reader left")

// Stream implements model.Provider.
func (p *Provider) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		ctx, cancel := context.WithTimeoutCause(ctx, p.o.Timeout, p.slow("did not finish its answer within", p.o.Timeout))
		defer cancel()
		err := p.turn(ctx, r, func(e model.Event) bool { return yield(e, nil) })
		if err == nil || errors.Is(err, errLeft) {
			return
		}
		if ctx.Err() != nil { // the reason says more than its symptom
			err = context.Cause(ctx)
		}
		yield(model.Event{}, err)
	}
}

func (p *Provider) turn(ctx context.Context, r model.Request, emit func(model.Event) bool) error {
	resp, err := p.send(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	a, err := p.read(resp, emit)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err() // an answer nobody waits for any more makes no calls
	}
	return p.deliver(a, emit)
}

// send gives the response of a server that accepted the request.
func (p *Provider) send(ctx context.Context, r model.Request) (*http.Response, error) {
	for {
		wanted := p.encode(r)
		body, err := json.Marshal(wanted)
		if err != nil {
			return nil, fmt.Errorf("the request to the model cannot be written as JSON: %w", err)
		}
		resp, err := p.post(ctx, body)
		if err != nil {
			return nil, p.unreachable(err)
		}
		if resp.StatusCode/100 == 2 {
			return resp, nil
		}
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
		resp.Body.Close()
		if err != nil && len(text) == 0 {
			return nil, p.unreachable(err)
		}
		said := p.understand(text)
		if p.adapt(wanted, resp.StatusCode, said) {
			continue
		}
		return nil, p.refusal(resp, said)
	}
}

func (p *Provider) post(ctx context.Context, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream, application/json")
	req.Header.Set("User-Agent", "rouse")
	if p.o.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+p.o.APIKey)
	}
	for k, v := range p.o.Headers {
		req.Header.Set(k, v)
	}
	return p.client.Do(req)
}

// adapt learns from a server that refuses a field by name. Each field is learned about
// once, so the request is repeated at most twice.
func (p *Provider) adapt(sent request, status int, said said) bool {
	if status != http.StatusBadRequest && status != http.StatusUnprocessableEntity {
		return false
	}
	switch {
	case sent.MaxTokens > 0 && strings.Contains(said.text, "max_completion_tokens"):
		p.maxCompletion.Store(true)
	case sent.StreamOptions != nil && strings.Contains(said.text, "stream_options"):
		p.noUsage.Store(true)
	default:
		return false
	}
	p.o.Logger.Debug("the model server refused a field and is asked without it", "model", p.o.Model, "said", said.text)
	return true
}
