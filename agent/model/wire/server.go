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
	maxRefusal     = 64 << 10 // bytes that are read of an error
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
	Name      string // of the adapter
	BaseURL   string // where it is when nobody says so
	Example   string // of a base_url
	Path      string // of the endpoint below it
	Query     string
	KeyHeader string // that carries the key, after KeyPrefix
	KeyPrefix string
	Header    map[string]string // sent with each request
	Lines     bool              // a stream is JSON line by line, not server-sent events
	Images    Images            // none where there are no types
}

// Exchange is one turn in the words of one kind of server.
type Exchange interface {
	// Request is what to send; it is asked for anew before each try.
	Request() (*Body, error)
	// Adapt learns from a server that refuses something, and says whether to ask again.
	Adapt(status int, said Said) bool
	// Advise adds to what is said of a failure; "" leaves it to the general advice. A
	// status of 0 says that there was no answer.
	Advise(kind model.ErrorKind, status int, said Said) string
	// Take adds a frame to the answer, and gives the text that it brought. io.EOF says that
	// nothing follows.
	Take(f Frame, a *Answer) (text string, err error)
}

// Server is one model on one server. It may be used by many goroutines.
type Server struct {
	e      Endpoint
	d      Dialect
	url    string // of the endpoint
	place  string // BaseURL as people may see it: without credentials and query
	host   string
	client *retryablehttp.Client
	header http.Header // of each request
	unused sync.Pool   // of *bufio.Reader: answers are small, and a new reader is not
	scrub  *redact.Redactor
	blind  atomic.Pointer[string] // what the server said of a model that sees no pictures; nil: nothing
}

// New checks what it is given; it does not reach for the server.
func New(e Endpoint, d Dialect) (*Server, error) {
	if e.Model == "" {
		return nil, fmt.Errorf("%s: no model was named; set model to a name that the server knows", d.Name)
	}

	if e.BaseURL == "" {
		e.BaseURL = d.BaseURL
	}

	u, err := url.Parse(e.BaseURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("%s: base_url is not an http address like %s", d.Name, d.Example)
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
		e.Transport = newPool()
	}

	e.Headers = maps.Clone(e.Headers)
	s := &Server{e: e, d: d, host: u.Hostname(), scrub: scrubber(e, u)}
	at := u.JoinPath(d.Path)
	if d.Query != "" {
		at.RawQuery = strings.Trim(at.RawQuery+"&"+d.Query, "&")
	}

	s.url = at.String()
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	s.place = u.String()
	s.client, s.header = s.newClient(e.Transport), s.newHeader()

	return s, nil
}

// Host is the server's name, without a port.
func (s *Server) Host() string { return s.host }

// Model is the name of the model.
func (s *Server) Model() string { return s.e.Model }

// errLeft says that whoever reads the events wants no more of them.
var errLeft = errors.New("the reader left")

type emit func(model.Event) bool

// Stream has one turn. The exchange is used up by it.
func (s *Server) Stream(ctx context.Context, x Exchange) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		ctx, cancel := context.WithTimeoutCause(ctx, s.e.Timeout, s.slow("did not finish its answer within", s.e.Timeout))
		defer cancel()

		err := s.turn(ctx, x, func(e model.Event) bool { return yield(e, nil) })
		if err == nil || errors.Is(err, errLeft) {
			return
		}

		if ctx.Err() != nil { // the reason says more than its symptom
			err = context.Cause(ctx)
		}

		yield(model.Event{}, err)
	}
}

// turn asks, as often as the answer pauses, and delivers.
func (s *Server) turn(ctx context.Context, x Exchange, emit emit) error {
	a := &Answer{}
	var paid model.Usage
	failure := s.round(ctx, x, a, emit)
	for n := 1; failure == nil && a.Paused && n < maxRounds; n++ {
		paid = sum(paid, a.Usage)
		a.Paused, a.Usage, a.Finish, a.Means = false, nil, "", ""
		failure = s.round(ctx, x, a, emit)
	}
	if failure != nil {
		return failure
	}

	// What was counted of an answer that broke off is not what it cost.
	if paid = sum(paid, a.Usage); a.Finish != "" && paid != (model.Usage{}) && !emit(model.Event{Usage: &paid}) {
		return errLeft
	}
	if ctx.Err() != nil {
		return ctx.Err() // an answer nobody waits for any more makes no calls
	}

	return s.deliver(a, emit)
}

// round sends one request and takes its answer in.
func (s *Server) round(ctx context.Context, x Exchange, a *Answer, emit emit) error {
	resp, err := s.send(ctx, x)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	return s.read(resp, func(f Frame) error {
		text, err := x.Take(f, a)
		if text != "" && !emit(model.Event{Text: text}) {
			return errLeft
		}
		return err
	})
}

// send gives the response of a server that accepted the request.
func (s *Server) send(ctx context.Context, x Exchange) (*http.Response, error) {
	for {
		body, err := x.Request()
		if err == nil {
			err = body.end()
		}
		if err != nil {
			return nil, err
		}

		resp, err := s.post(ctx, body)
		if err != nil {
			return nil, s.unreachable(x, err)
		}
		if resp.StatusCode/100 == 2 {
			return resp, nil
		}

		text, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
		resp.Body.Close()
		if err != nil && len(text) == 0 {
			return nil, s.unreachable(x, err)
		}

		said := s.understand(text)
		if x.Adapt(resp.StatusCode, said) {
			s.e.Logger.Debug("the model server refused a field and is asked again without it", "model", s.e.Model, "said", said.Text)
			continue
		}

		return nil, s.refusal(x, resp, said)
	}
}

func (s *Server) post(ctx context.Context, body *Body) (*http.Response, error) {
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, s.url, body.open)
	if err != nil {
		return nil, err
	}
	req.Header = s.header.Clone()
	return s.client.Do(req)
}

// newHeader is the header of each request; what the owner says goes over what is usual.
func (s *Server) newHeader() http.Header {
	h := http.Header{}
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "text/event-stream, application/x-ndjson, application/json")
	h.Set("User-Agent", "rouse")
	if s.e.APIKey != "" {
		h.Set(s.d.KeyHeader, s.d.KeyPrefix+s.e.APIKey)
	}

	for _, set := range []map[string]string{s.d.Header, s.e.Headers} {
		for k, v := range set {
			h.Set(k, v)
		}
	}

	return h
}
