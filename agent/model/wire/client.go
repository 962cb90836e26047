package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/hashicorp/go-retryablehttp"

	"rouse/agent/model"
	"rouse/agent/redact"
)

const (
	defaultTimeout = 10 * time.Minute
	defaultIdle    = 2 * time.Minute
	maxErrorBody   = 64 << 10 // bytes that are read of an error
	maxRounds      = 5        // in which an answer that pauses may be given
)

// Endpoint says where a model is, as its owner configures it.
type Endpoint struct {
	BaseURL   string // "" is the provider's own
	APIKey    string
	Model     string
	Headers   map[string]string
	Timeout   time.Duration // of one turn, with its retries; 0 means 10m
	Idle      time.Duration // without a byte from the server; 0 means 2m
	Logger    *slog.Logger
	Transport http.RoundTripper // nil is a pool of its own
}

// Dialect is how one kind of server is spoken to.
type Dialect struct {
	Name       string // of the adapter
	BaseURL    string // where it is when nobody says so
	ExampleURL string // of a base_url
	Path       string // of the endpoint below it
	Query      string
	KeyHeader  string // that carries the key, after KeyPrefix
	KeyPrefix  string
	Headers    map[string]string // sent with each request
	JSONLines  bool              // a stream is JSON line by line, not server-sent events
	Images     ImageLimits       // none where there are no types
}

// Exchange is one turn in the words of one kind of server.
type Exchange interface {
	// Request is what to send; it is asked for anew before each try.
	EncodeRequest() (*BodyBuilder, error)
	// Adapt learns from a server that refuses something, and says whether to ask again.
	Adapt(status int, said ServerError) bool
	// Advise adds to what is said of a failure; "" leaves it to the general advice. A
	// status of 0 says that there was no answer.
	Hint(kind model.ErrorKind, status int, said ServerError) string
	// Take adds a frame to the answer, and gives the text that it brought. io.EOF says that
	// nothing follows.
	Decode(f Frame, a *Accumulator) (text string, err error)
}

// Client is one model on one server. It may be used by many goroutines.
type Client struct {
	endpoint   Endpoint
	dialect    Dialect
	url        string // of the endpoint
	shownURL   string // BaseURL as people may see it: without credentials and query
	host       string
	httpClient *retryablehttp.Client
	headers    http.Header // of each request
	readers    sync.Pool   // of *bufio.Reader: answers are small, and a new reader is not
	redactor   *redact.Redactor
	noImages   atomic.Pointer[string] // what the server said of a model that sees no pictures; nil: nothing
}

// New checks what it is given; it does not reach for the server.
func New(e Endpoint, d Dialect) (*Client, error) {
	if e.Model == "" {
		return nil, fmt.Errorf("%s: no model was named; set model to a name that the server knows", d.Name)
	}

	if e.BaseURL == "" {
		e.BaseURL = d.BaseURL
	}

	u, err := url.Parse(e.BaseURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("%s: base_url is not an http address like %s", d.Name, d.ExampleURL)
	}

	e.APIKey = strings.TrimSpace(e.APIKey)
	for name, v := range e.Headers {
		if strings.ContainsFunc(v, unicode.IsControl) {
			return nil, fmt.Errorf("%s: the header %s holds a line break or another control character", d.Name, name)
		}
	}

	if strings.ContainsFunc(e.APIKey, unicode.IsControl) {
		return nil, fmt.Errorf("%s: api_key holds a line break or another control character", d.Name)
	}

	if e.Timeout <= 0 {
		e.Timeout = defaultTimeout
	}

	if e.Idle <= 0 {
		e.Idle = defaultIdle
	}

	if e.Logger == nil {
		e.Logger = slog.New(slog.DiscardHandler)
	}

	if e.Transport == nil {
		e.Transport = newTransport()
	}

	e.Headers = maps.Clone(e.Headers)
	s := &Client{endpoint: e, dialect: d, host: u.Hostname(), redactor: newRedactor(e, u)}
	at := u.JoinPath(d.Path)
	if d.Query != "" {
		at.RawQuery = strings.Trim(at.RawQuery+"&"+d.Query, "&")
	}

	s.url = at.String()
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	s.shownURL = u.String()
	s.httpClient, s.headers = s.newClient(e.Transport), s.newHeaders()

	return s, nil
}

// Host is the server's name, without a port.
func (s *Client) Host() string { return s.host }

// Model is the name of the model.
func (s *Client) Model() string { return s.endpoint.Model }

// errStopped says that whoever reads the events wants no more of them.
var errStopped = errors.New("the reader left")

type emit func(model.Event) bool

// Stream has one turn. The exchange is used up by it.
func (s *Client) Stream(ctx context.Context, x Exchange) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		ctx, cancel := context.WithTimeoutCause(ctx, s.endpoint.Timeout, s.timeoutError("did not finish its answer within", s.endpoint.Timeout))
		defer cancel()

		err := s.runTurn(ctx, x, func(e model.Event) bool { return yield(e, nil) })
		if err == nil || errors.Is(err, errStopped) {
			return
		}

		if ctx.Err() != nil { // the reason says more than its symptom
			err = context.Cause(ctx)
		}

		yield(model.Event{}, err)
	}
}

// runTurn asks, as often as the answer pauses, and delivers.
func (s *Client) runTurn(ctx context.Context, x Exchange, emit emit) error {
	a := &Accumulator{}
	var paid model.Usage
	failure := s.roundTrip(ctx, x, a, emit)
	for n := 1; failure == nil && a.Paused && n < maxRounds; n++ {
		paid = addUsage(paid, a.Usage)
		a.Paused, a.Usage, a.FinishReason, a.StopReason = false, nil, "", ""
		failure = s.roundTrip(ctx, x, a, emit)
	}
	if failure != nil {
		return failure
	}

	// What was counted of an answer that broke off is not what it cost.
	if paid = addUsage(paid, a.Usage); a.FinishReason != "" && paid != (model.Usage{}) && !emit(model.Event{Usage: &paid}) {
		return errStopped
	}
	if ctx.Err() != nil {
		return ctx.Err() // an answer nobody waits for any more makes no calls
	}

	return s.deliver(a, emit)
}

// roundTrip sends one request and takes its answer in.
func (s *Client) roundTrip(ctx context.Context, x Exchange, a *Accumulator, emit emit) error {
	resp, err := s.send(ctx, x)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	return s.readAnswer(resp, func(f Frame) error {
		text, err := x.Decode(f, a)
		if text != "" && !emit(model.Event{Text: text}) {
			return errStopped
		}
		return err
	})
}

// send gives the response of a server that accepted the request.
func (s *Client) send(ctx context.Context, x Exchange) (*http.Response, error) {
	for {
		body, err := x.EncodeRequest()
		if err == nil {
			err = body.finish()
		}
		if err != nil {
			return nil, err
		}

		resp, err := s.post(ctx, body)
		if err != nil {
			return nil, s.unreachableError(x, err)
		}
		if resp.StatusCode/100 == 2 {
			return resp, nil
		}

		text, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
		resp.Body.Close()
		if err != nil && len(text) == 0 {
			return nil, s.unreachableError(x, err)
		}

		said := s.parseError(text)
		if x.Adapt(resp.StatusCode, said) {
			s.endpoint.Logger.Debug("the model server refused a field and is asked again without it", "model", s.endpoint.Model, "said", said.Message)
			continue
		}

		return nil, s.statusError(x, resp, said)
	}
}

func (s *Client) post(ctx context.Context, body *BodyBuilder) (*http.Response, error) {
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, s.url, body.newReader)
	if err != nil {
		return nil, err
	}
	req.Header = s.headers.Clone()
	return s.httpClient.Do(req)
}

// newHeaders is the header of each request; what the owner says goes over what is usual.
func (s *Client) newHeaders() http.Header {
	h := http.Header{}
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "text/event-stream, application/x-ndjson, application/json")
	h.Set("User-Agent", "rouse")
	if s.endpoint.APIKey != "" {
		h.Set(s.dialect.KeyHeader, s.dialect.KeyPrefix+s.endpoint.APIKey)
	}

	for _, set := range []map[string]string{s.dialect.Headers, s.endpoint.Headers} {
		for k, v := range set {
			h.Set(k, v)
		}
	}

	return h
}
