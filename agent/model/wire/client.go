package wire

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/hashicorp/go-retryablehttp"

	"rouse/agent/model"
	"rouse/agent/redact"
	"rouse/internal/progress"
)

const (
	defaultTimeout = 10 * time.Minute
	defaultIdle    = 2 * time.Minute
	maxErrorBody   = 64 << 10 // bytes read of an error response
	maxRounds      = 5        // requests for one answer that pauses
)

// Endpoint is the address and the configuration of one model.
type Endpoint struct {
	BaseURL   string // "" means the provider's own
	APIKey    string
	Model     string
	Headers   map[string]string
	Timeout   time.Duration // timeout of one turn, including retries; 0 means 10m
	Idle      time.Duration // maximum time between bytes from the server; 0 means 2m
	Logger    *slog.Logger
	Transport http.RoundTripper // nil means a separate connection pool
}

// Dialect describes the API of one kind of server.
type Dialect struct {
	Name       string // name of the adapter
	BaseURL    string // used if Endpoint.BaseURL is empty
	ExampleURL string // example of a base_url for error messages
	Path       string // path of the endpoint, below BaseURL
	Query      string
	KeyHeader  string            // header for the API key
	KeyPrefix  string            // precedes the key in KeyHeader
	Headers    map[string]string // sent with each request
	JSONLines  bool              // streams are JSON lines, not server-sent events
	Images     ImageLimits       // if it has no Types, the server accepts no images
	// Hint returns the remedy for a failure, or "" for the general remedy. The status is 0 if there
	// was no response. Optional.
	Hint func(kind model.ErrorKind, status int, refusal ServerError) string
}

// Exchange encodes the request and decodes the answer of one turn.
type Exchange interface {
	// EncodeRequest returns the body of a request, which is sent as JSON. It is called again after
	// Adapt returns true, and to continue an answer that pauses.
	EncodeRequest() any
	// Adapt learns from an error response which feature the server does not support, and reports
	// whether to retry. It must not cause endless retries.
	Adapt(status int, refusal ServerError) (retry bool)
	// Decode processes a frame and returns its text, which is emitted at once. It returns io.EOF at
	// the end of the answer.
	Decode(f Frame, a *Accumulator) (delta string, err error)
}

// Client sends requests to one model on one server. It is safe for concurrent use.
type Client struct {
	endpoint   Endpoint
	dialect    Dialect
	url        string // URL of the endpoint
	base       *url.URL
	shownURL   string // BaseURL without credentials and query, for messages
	host       string
	httpClient *retryablehttp.Client
	headers    http.Header // headers of each request
	redactor   *redact.Redactor
	// noImages is the server's message that the model does not support images. It is nil until the
	// server has sent such a message.
	noImages atomic.Pointer[string]
	// most is the server's limit of an answer in tokens. Zero means unknown, and a negative value
	// means that the server accepts no limit.
	most    atomic.Int64
	tooLong *model.Error // error of a turn that did not end in time
	silent  *idleTimeout // error of a server that stopped sending
}

// New checks the endpoint. It does not connect to the server.
func New(e Endpoint, d Dialect) (*Client, error) {
	if e.Model == "" {
		return nil, fmt.Errorf("%s: no model was named; set model to a name that the server knows", d.Name)
	}

	e.BaseURL = cmp.Or(e.BaseURL, d.BaseURL)
	u, err := url.Parse(e.BaseURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("%s: base_url is not an http address like %s", d.Name, d.ExampleURL)
	}

	// A key from a file ends with a line feed. net/http would put an invalid key into its error.
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
	e.Logger = cmp.Or(e.Logger, slog.New(slog.DiscardHandler))
	if e.Transport == nil {
		e.Transport = newTransport()
	}

	e.Headers = maps.Clone(e.Headers)
	c := &Client{endpoint: e, dialect: d, host: u.Hostname(), redactor: newRedactor(e, u), base: u.JoinPath()}
	at := u.JoinPath(d.Path)
	if d.Query != "" {
		at.RawQuery = strings.Trim(at.RawQuery+"&"+d.Query, "&")
	}

	c.url = at.String()
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	c.shownURL = u.String()
	c.httpClient, c.headers = c.newClient(e.Transport), c.newHeaders()
	// Created once, because every turn needs them but rarely uses them.
	c.tooLong = c.timeoutError("did not finish its answer within", e.Timeout)
	c.silent = &idleTimeout{c.timeoutError("sent nothing for", e.Idle)}

	return c, nil
}

// Host returns the server's name, without a port.
func (c *Client) Host() string { return c.host }

// Model returns the name of the model.
func (c *Client) Model() string { return c.endpoint.Model }

// shownName returns the name of the model with its address.
func (c *Client) shownName() string { return c.endpoint.Model + " at " + c.shownURL }

// errStopped means that the consumer of the events has stopped iterating and must not be called
// again.
var errStopped = errors.New("the consumer stopped")

type emit func(model.Event) bool

// Stream runs one turn. It cuts off an answer longer than maxOutput tokens. Zero means no limit.
func (c *Client) Stream(ctx context.Context, x Exchange, maxOutput int) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		ctx, cancel := context.WithTimeoutCause(ctx, c.endpoint.Timeout, c.tooLong)
		defer cancel()

		lost := &lostRequests{}
		progress.From(ctx).Waits(c.shownName(), "")
		err := c.runTurn(context.WithValue(ctx, lostKey{}, lost), x, maxOutput, lost, func(e model.Event) bool { return yield(e, nil) })
		if err == nil || errors.Is(err, errStopped) {
			return
		}

		if ctx.Err() != nil { // the cause is more specific than the resulting error
			err = lost.ended(context.Cause(ctx))
		}

		yield(model.Event{}, err)
	}
}

// runTurn sends the request, repeats it for each pause of the answer, and then emits the calls.
func (c *Client) runTurn(ctx context.Context, x Exchange, maxOutput int, lost *lostRequests, emit emit) error {
	a := &Accumulator{maxOutput: maxOutput}
	var paid model.Usage
	failure := c.roundTrip(ctx, x, a, emit)
	for n := 1; failure == nil && a.Paused && n < maxRounds; n++ {
		// Each round is billed separately. Parts and calls accumulate, because the rounds form one
		// answer.
		paid = paid.Add(a.reported())
		a.Paused, a.answering, a.Usage, a.FinishReason, a.StopReason = false, false, nil, "", ""
		failure = c.roundTrip(ctx, x, a, emit)
	}
	if errors.Is(failure, errStopped) {
		return failure
	}

	// A complete answer costs money even if it turns out to be unusable below.
	whole := failure == nil && a.FinishReason != "" && !a.stopped
	if whole {
		paid = paid.Add(a.reported())
	}

	if paid != (model.Usage{}) && !emit(model.Event{Usage: &paid}) {
		return errStopped
	}
	if u := c.unreported(a, lost, whole, failure); (u.Requests > 0 || !whole) && !emit(model.Event{Unreported: &u}) {
		return errStopped
	}

	switch {
	case failure != nil:
		return failure
	case ctx.Err() != nil:
		return ctx.Err() // the caller has given up, so the answer must not make calls
	}

	if again := lost.retried; again.Times > 0 {
		again.Last = c.redactor.Replace(again.Last)
		if !emit(model.Event{Retried: &again}) {
			return errStopped
		}
	}
	return c.deliver(a, emit)
}

// roundTrip sends one request and decodes its answer.
func (c *Client) roundTrip(ctx context.Context, x Exchange, a *Accumulator, emit emit) error {
	resp, err := c.send(ctx, x)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	a.answering, a.textBytes = true, 0
	return c.readAnswer(resp, func(f Frame) error {
		text, err := x.Decode(f, a)
		progress.From(ctx).Arrived(len(f.Data)) // counts reasoning and calls as well as text
		a.textBytes += len(text)
		a.frames++
		if text != "" && !emit(model.Event{Text: text}) {
			return errStopped
		}
		if err == nil && !f.Document && a.FinishReason == "" && a.isTooLong() {
			a.stopped, a.FinishReason, a.StopReason = true, "length", model.StopLength
			return io.EOF
		}
		return err
	})
}

// send returns the response to an accepted request. It adapts the request if necessary.
func (c *Client) send(ctx context.Context, x Exchange) (*http.Response, error) {
	for {
		body, err := json.Marshal(x.EncodeRequest())
		if err != nil {
			return nil, fmt.Errorf("the request to the model cannot be written as JSON: %w", err)
		}
		resp, err := c.post(ctx, body)
		if err != nil {
			return nil, c.unreachableError(err)
		}
		if resp.StatusCode/100 == 2 {
			return resp, nil
		}

		// A partially read error message is more useful than the read error.
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
		resp.Body.Close()
		if err != nil && len(text) == 0 {
			return nil, c.unreachableError(err)
		}

		refusal := c.parseError(text)
		if x.Adapt(resp.StatusCode, refusal) {
			c.endpoint.Logger.Debug("the model server refused a field and is asked again without it", "model", c.endpoint.Model, "said", refusal.Message)
			continue
		}

		return nil, c.statusError(resp, refusal)
	}
}

func (c *Client) post(ctx context.Context, body []byte) (*http.Response, error) {
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, c.url, body)
	if err != nil {
		return nil, err
	}
	// A copy, because the transport adds headers.
	req.Header = c.headers.Clone()
	return c.httpClient.Do(req)
}

// newHeaders returns the headers of each request. Configured headers override the defaults.
func (c *Client) newHeaders() http.Header {
	h := http.Header{}
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "text/event-stream, application/x-ndjson, application/json")
	h.Set("User-Agent", "rouse")
	if c.endpoint.APIKey != "" {
		h.Set(c.dialect.KeyHeader, c.dialect.KeyPrefix+c.endpoint.APIKey)
	}

	for _, set := range []map[string]string{c.dialect.Headers, c.endpoint.Headers} {
		for k, v := range set {
			h.Set(k, v)
		}
	}

	return h
}

// maxListing is the maximum number of bytes read of a list of models.
const maxListing = 8 << 20

// Listing returns an empty listing for the client's server.
func (c *Client) Listing() model.Listing { return model.Listing{Server: c.shownURL} }

// Ask sends one request to a path below BaseURL and decodes the JSON response into answer. It sends
// a POST if question is not nil, otherwise a GET. It returns false if the server does not have the
// path or does not respond with JSON. It sets l.Date.
func (c *Client) Ask(ctx context.Context, path string, question, answer any, l *model.Listing) (found bool, err error) {
	method, body := http.MethodGet, io.Reader(nil)
	if question != nil {
		text, err := json.Marshal(question)
		if err != nil {
			return false, err
		}
		method, body = http.MethodPost, bytes.NewReader(text)
	}

	path, query, _ := strings.Cut(path, "?")
	at := c.base.JoinPath(path)
	at.RawQuery = strings.Trim(at.RawQuery+"&"+query, "&")
	req, err := http.NewRequestWithContext(ctx, method, at.String(), body)
	if err != nil {
		return false, c.redactError(err)
	}

	req.Header = c.headers.Clone()
	req.Header.Set("Accept", "application/json")
	req.Close = true // no further request follows soon
	resp, err := c.httpClient.HTTPClient.Do(req)
	if ctx.Err() != nil {
		return false, c.newError(model.KindUnavailable, true, "the model server %s gave no answer in time", c.shownURL)
	}
	if err != nil {
		return false, c.unreachableError(err)
	}
	defer resp.Body.Close()

	if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		l.Date = at
	}

	text, err := io.ReadAll(io.LimitReader(resp.Body, maxListing))
	switch {
	case resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed:
		return false, nil
	case resp.StatusCode/100 != 2:
		return false, c.statusError(resp, c.parseError(text))
	case err != nil:
		return false, c.unreachableError(err)
	}

	// An HTML page instead of a list provides no information.
	return json.Unmarshal(text, answer) == nil, nil
}

// AskNames adds the names of all models of the server to l.
func (c *Client) AskNames(ctx context.Context, path string, l *model.Listing) error {
	type named struct{ ID, Name string }
	var all struct{ Data, Models []named }
	found, err := c.Ask(ctx, path, nil, &all, l)
	if err != nil || !found || all.Data == nil && all.Models == nil {
		return err
	}

	l.Known = true
	for _, m := range append(all.Data, all.Models...) {
		l.Models = append(l.Models, strings.TrimPrefix(cmp.Or(m.ID, m.Name), "models/"))
	}
	return nil
}
