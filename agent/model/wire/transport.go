package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

const (
	maxTries     = 4
	firstPause   = 500 * time.Millisecond
	longestPause = time.Minute // a server that asks for more is not waited for here
)

// newClient is the transport: retries around tries that must not fall silent. There is no
// http.Client.Timeout, which would end a stream that is well.
func (s *Client) newClient(base http.RoundTripper) *retryablehttp.Client {
	// A redirect is not followed: it would carry the headers to another host.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c := retryablehttp.NewClient()
	c.HTTPClient = &http.Client{Transport: &idleTransport{base, s}, CheckRedirect: stay}
	c.Logger = nil
	c.RetryMax = maxTries - 1
	c.RetryWaitMin, c.RetryWaitMax = firstPause, longestPause
	c.CheckRetry = checkRetry
	c.Backoff = s.backoff
	c.ErrorHandler = retryablehttp.PassthroughErrorHandler

	return c
}

// idleConnections is how many connections to a server are kept for the next requests: more
// runs than that are seldom at once, and none of them is to begin with a handshake.
const idleConnections = 256

// newTransport is the connections of one model.
func newTransport() http.RoundTripper {
	pool, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport // a program that replaced it wants it used
	}

	pool = pool.Clone()
	pool.MaxIdleConns, pool.MaxIdleConnsPerHost = idleConnections, idleConnections
	pool.DialContext = pooledDialer(pool.DialContext)
	return pool
}

// checkRetry is the library's policy for a caller who does not wait for ever. It returns
// no error of its own: the library would hand it out together with an open response.
func checkRetry(ctx context.Context, resp *http.Response, err error) (again bool, _ error) {
	if worthWaiting(ctx, resp, err) {
		again, _ = retryablehttp.DefaultRetryPolicy(ctx, resp, err)
	}
	return again, nil
}

func worthWaiting(ctx context.Context, resp *http.Response, err error) bool {
	if ctx.Err() != nil || errors.As(err, new(*idleTimeout)) {
		return false
	}
	wait, asked := retryAfter(resp)
	deadline, bounded := ctx.Deadline()
	return !asked || wait <= longestPause && (!bounded || wait < time.Until(deadline))
}

// backoff doubles with each try, or is what the server asked for. Both are spread, so that
// all who were refused together do not come back together.
func (s *Client) backoff(first, longest time.Duration, try int, resp *http.Response) time.Duration {
	wait, asked := retryAfter(resp)
	if !asked {
		wait = min(first<<try, longest)
		wait -= rand.N(wait/2 + 1)
	} else if wait > 0 {
		wait += rand.N(wait/10 + 1)
	}

	status := "none"
	if resp != nil {
		status = resp.Status
	}

	s.endpoint.Logger.Warn("the model server is asked again", "model", s.endpoint.Model, "server", s.shownURL, "status", status, "wait", wait)
	return wait
}

// retryAfter is how long a server wants to be left alone: seconds, or a date.
func retryAfter(resp *http.Response) (wait time.Duration, asked bool) {
	if resp == nil {
		return 0, false
	}

	text := resp.Header.Get("Retry-After")
	if text == "" {
		return 0, false
	}
	if d, err := time.ParseDuration(text + "s"); err == nil && d >= 0 {
		return d, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(time.Until(at), 0), true
	}

	return 0, false
}

// idleTimeout is a server that sent nothing for too long. It is not tried again at once: it
// has had its time.
type idleTimeout struct{ error }

func (s *idleTimeout) Unwrap() error { return s.error }

// idleTransport ends a try when the server is silent for too long. Its clock runs only while
// something is waited for: not between tries, and not while the reader is busy.
type idleTransport struct {
	next   http.RoundTripper
	client *Client
}

// RoundTrip implements http.RoundTripper.
func (l *idleTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	clock := time.AfterFunc(l.client.endpoint.Idle, func() { cancel(&idleTimeout{l.client.timeoutError("sent nothing for", l.client.endpoint.Idle)}) })
	resp, err := l.next.RoundTrip(req.WithContext(ctx))
	clock.Stop()
	if err != nil {
		defer cancel(nil)
		return nil, idleCause(ctx, err)
	}

	resp.Body = &idleBody{resp.Body, ctx, cancel, clock, l.client.endpoint.Idle}
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		moveRetryDelay(resp)
	}

	return resp, nil
}

// retryDelay is where Google's servers say how long they want to be left alone.
var retryDelay = regexp.MustCompile(`"retryDelay":\s*"([0-9.]+)s"`)

// moveRetryDelay puts a pause that is asked for in the body of a refusal where all others put it.
func moveRetryDelay(resp *http.Response) {
	if _, asked := retryAfter(resp); asked {
		return
	}

	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	resp.Body = &readCloser{io.MultiReader(bytes.NewReader(text), resp.Body), resp.Body} // which gives the error again
	if m := retryDelay.FindSubmatch(text); m != nil {
		resp.Header.Set("Retry-After", string(m[1]))
	}
}

// idleCause prefers silence to what it looks like from below.
func idleCause(ctx context.Context, err error) error {
	var s *idleTimeout
	if errors.As(context.Cause(ctx), &s) {
		return s
	}
	return err
}

// idleBody is a body that is listened to.
type idleBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration
}

// Read implements io.Reader.
func (h *idleBody) Read(b []byte) (int, error) {
	h.timer.Reset(h.limit)
	n, err := h.ReadCloser.Read(b)
	h.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = idleCause(h.ctx, err)
	}
	return n, err
}

// Close implements io.Closer.
func (h *idleBody) Close() error {
	h.timer.Stop()
	h.cancel(nil)
	return h.ReadCloser.Close()
}
