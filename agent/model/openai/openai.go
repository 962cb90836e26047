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
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"rouse/agent/model"
)

const (
	defaultBaseURL = "https://api.openai.com/v1"
	defaultTimeout = 10 * time.Minute
	defaultIdle    = 2 * time.Minute
	transportTries = 4
	longestPause   = time.Minute // a server that wants more is not waited for
)

// Options say where a model is.
type Options struct {
	BaseURL string // with its /v1; "" is OpenAI's
	APIKey  string
	Model   string
	Headers map[string]string
	Timeout time.Duration // of one turn; 0 means 10m
	Idle    time.Duration // without a byte; 0 means 2m
	Logger  *slog.Logger
}

// Provider is one model on one server. It is safe for use by many goroutines.
type Provider struct {
	o    Options
	url  string
	http *retryablehttp.Client
}

// New checks the options; it does not reach for the server.
func New(o Options) (*Provider, error) {
	if o.Model == "" {
		return nil, errors.New("openai: no model was named")
	}
	if o.BaseURL == "" {
		o.BaseURL = defaultBaseURL
	}
	u, err := url.Parse(o.BaseURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("openai: base_url %q is not an http address like http://127.0.0.1:8080/v1", o.BaseURL)
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
	c := retryablehttp.NewClient()
	c.Logger = nil
	c.RetryMax = transportTries - 1
	c.RetryWaitMin, c.RetryWaitMax = 500*time.Millisecond, longestPause
	c.Backoff = retryablehttp.RateLimitLinearJitterBackoff
	c.ErrorHandler = retryablehttp.PassthroughErrorHandler
	c.CheckRetry = checkRetry
	return &Provider{o: o, url: u.JoinPath("chat/completions").String(), http: c}, nil
}

// checkRetry is the library's policy, without waiting for servers that ask for long pauses.
func checkRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if resp != nil && retryAfter(resp) > longestPause {
		return false, nil
	}
	return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
}

func retryAfter(resp *http.Response) time.Duration {
	text := resp.Header.Get("Retry-After")
	if d, err := time.ParseDuration(text + "s"); err == nil && d > 0 {
		return d
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

// Stream implements model.Provider.
func (p *Provider) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		total := time.AfterFunc(p.o.Timeout, func() { cancel(p.tooLong("did not finish its answer", p.o.Timeout)) })
		defer total.Stop()
		idle := time.AfterFunc(p.o.Idle, func() { cancel(p.tooLong("sent nothing", p.o.Idle)) })
		defer idle.Stop()
		resp, err := p.send(ctx, r)
		if err != nil {
			yield(model.Event{}, p.because(ctx, err))
			return
		}
		defer resp.Body.Close()
		resp.Body = &watched{resp.Body, func() { idle.Reset(p.o.Idle) }}
		for e, err := range p.decode(resp) {
			if err != nil {
				err = p.because(ctx, err)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func (p *Provider) tooLong(what string, d time.Duration) error {
	return &model.Error{Kind: model.KindUnavailable, Retryable: true, Message: fmt.Sprintf("the model %s at %s %s for %s", p.o.Model, p.o.BaseURL, what, d)}
}

// because prefers the reason for which the request was ended to its symptom.
func (p *Provider) because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// watched tells of every byte.
type watched struct {
	io.ReadCloser
	alive func()
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.ReadCloser.Read(b)
	if n > 0 {
		w.alive()
	}
	return n, err
}

func (p *Provider) send(ctx context.Context, r model.Request) (*http.Response, error) {
	body, err := json.Marshal(p.encode(r))
	if err != nil {
		return nil, fmt.Errorf("the request to the model cannot be written as JSON: %w", err)
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	if p.o.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+p.o.APIKey)
	}
	for k, v := range p.o.Headers {
		req.Header.Set(k, v)
	}
	resp, err := p.http.Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return nil, &model.Error{Kind: model.KindUnavailable, Retryable: true, Message: fmt.Sprintf("the model server %s cannot be reached", p.o.BaseURL), Err: err}
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, p.refusal(resp)
	}
	return resp, nil
}

// refusal words an answer that is not 200.
func (p *Provider) refusal(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	said := serverSaid(text)
	e := &model.Error{Kind: model.KindBadRequest, RetryAfter: retryAfter(resp),
		Message: fmt.Sprintf("the model server %s answered %s for model %s: %s", p.o.BaseURL, resp.Status, p.o.Model, said)}
	switch lower := strings.ToLower(said); {
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		e.Kind = model.KindAuth
		e.Message += "; check api_key"
	case resp.StatusCode == http.StatusNotFound:
		e.Message += "; check base_url and the model's name"
	case resp.StatusCode == http.StatusTooManyRequests:
		e.Kind, e.Retryable = model.KindRateLimited, true
	case resp.StatusCode >= 500:
		e.Kind, e.Retryable = model.KindUnavailable, true
	case strings.Contains(lower, "context") && (strings.Contains(lower, "length") || strings.Contains(lower, "size") || strings.Contains(lower, "exceed")):
		e.Kind = model.KindContextOverflow
	}
	return e
}

// serverSaid is the message of an error body, whatever its shape.
func serverSaid(body []byte) string {
	var shape struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  string          `json:"detail"`
	}
	if json.Unmarshal(body, &shape) == nil {
		var inner struct {
			Message string `json:"message"`
		}
		var text string
		switch {
		case json.Unmarshal(shape.Error, &inner) == nil && inner.Message != "":
			return inner.Message
		case json.Unmarshal(shape.Error, &text) == nil && text != "":
			return text
		case shape.Message != "":
			return shape.Message
		case shape.Detail != "":
			return shape.Detail
		}
	}
	text := strings.Join(strings.Fields(string(body)), " ")
	if text == "" {
		return "no explanation"
	}
	if runes := []rune(text); len(runes) > 300 {
		text = string(runes[:300]) + "…"
	}
	return text
}
