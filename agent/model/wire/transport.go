package wire

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"rouse/agent/model"
	"rouse/internal/progress"
)

const (
	maxTries     = 4
	firstPause   = 500 * time.Millisecond
	longestPause = time.Minute // the transport does not wait longer, even if the server asks for it
)

// newClient returns an HTTP client that retries, and cancels an attempt if the server sends
// nothing. It has no http.Client.Timeout, because that would end a stream that makes progress.
func (c *Client) newClient(base http.RoundTripper) *retryablehttp.Client {
	// Redirects are not followed: they would send the key to another host.
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	rc := retryablehttp.NewClient()
	rc.HTTPClient = &http.Client{Transport: &idleTransport{base, c}, CheckRedirect: noRedirect}
	rc.Logger = nil // it would log URLs, which may contain credentials
	rc.RetryMax = maxTries - 1
	rc.RetryWaitMin, rc.RetryWaitMax = firstPause, longestPause
	rc.CheckRetry = c.checkRetry
	rc.Backoff = c.backoff
	// After the last attempt, return the response and not the library's error.
	rc.ErrorHandler = retryablehttp.PassthroughErrorHandler

	return rc
}

// idleConnections is the number of idle connections kept per server.
const idleConnections = 256

// newTransport returns the connection pool of one model.
func newTransport() http.RoundTripper {
	pool, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport // a replaced default transport must be used
	}

	pool = pool.Clone()
	pool.MaxIdleConns, pool.MaxIdleConnsPerHost = idleConnections, idleConnections
	return pool
}

// checkRetry reports whether to retry. It allows only retries of requests that cost nothing, within
// the caller's deadline. It does not retry a final rejection, such as a 429 for a used-up quota. It
// never returns an error, because the library would return that error together with an open
// response.
func (c *Client) checkRetry(ctx context.Context, resp *http.Response, err error) (retry bool, _ error) {
	if !worthWaiting(ctx, resp, err) || lostOf(ctx).n.Load() > 0 {
		return false, nil
	}
	if retry, _ = retryablehttp.DefaultRetryPolicy(ctx, resp, err); !retry {
		return false, nil
	}

	lost := lostOf(ctx)
	failure, ok := errors.AsType[*model.Error](c.tryError(resp, err))
	if !ok || !failure.Retryable {
		return false, nil
	}
	lost.noteRetry(failure, resp, err)
	progress.From(ctx).Waits(c.shownName(), failure.Message)
	return true, nil
}

// tryError returns the error of one attempt, which had no response or an error status.
func (c *Client) tryError(resp *http.Response, err error) error {
	if err != nil {
		return c.unreachableError(err)
	}
	return c.statusError(resp, c.parseError(peekBody(resp)))
}

// noteRetry records the reason of a retry, without URLs, which may contain credentials.
func (l *lostRequests) noteRetry(failure error, resp *http.Response, err error) {
	var outer *url.Error
	for errors.As(err, &outer) {
		err = outer.Err
	}

	l.retried.Times, l.failure = l.retried.Times+1, failure
	switch {
	case err != nil:
		l.retried.Last = err.Error()
	case resp != nil:
		l.retried.Last = resp.Status
	}
}

// worthWaiting reports whether another attempt can start before the turn ends.
func worthWaiting(ctx context.Context, resp *http.Response, err error) bool {
	if ctx.Err() != nil || errors.As(err, new(*idleTimeout)) {
		return false
	}
	wait, asked := retryAfter(resp)
	deadline, bounded := ctx.Deadline()
	return !asked || wait <= longestPause && (!bounded || wait < time.Until(deadline))
}

// backoff returns the wait before the next attempt: exponential, or as requested by the server.
// Both have jitter.
func (c *Client) backoff(first, longest time.Duration, attempt int, resp *http.Response) time.Duration {
	wait, asked := retryAfter(resp)
	if !asked {
		wait = min(first<<attempt, longest)
		wait -= rand.N(wait/2 + 1)
	} else if wait > 0 {
		wait += rand.N(wait/10 + 1) // never less than the server asked for
	}

	status := "none"
	if resp != nil {
		status = resp.Status
	}

	c.endpoint.Logger.Warn("the model server is asked again", "model", c.endpoint.Model, "server", c.shownURL, "status", status, "wait", wait)
	return wait
}

// retryAfter returns the Retry-After header of a response, which holds seconds or a date.
func retryAfter(resp *http.Response) (wait time.Duration, asked bool) {
	if resp == nil {
		return 0, false
	}

	text := resp.Header.Get("Retry-After")
	if text == "" {
		return 0, false
	}
	// Fractions of seconds are not in the standard, but moveRetryDelay uses them.
	if d, err := time.ParseDuration(text + "s"); err == nil && d >= 0 {
		return min(d, longestNamed), true
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(time.Until(at), 0), longestNamed), true
	}

	return 0, false
}

// idleTimeout is the error for a server that sends nothing. It is not retried at once.
type idleTimeout struct{ error }

func (e *idleTimeout) Unwrap() error { return e.error }

// idleTransport cancels an attempt if the server sends nothing for too long. Its timer runs only
// while the client waits for the server.
type idleTransport struct {
	next   http.RoundTripper
	client *Client
}

// RoundTrip implements http.RoundTripper.
func (l *idleTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(l.client.endpoint.Idle, func() { cancel(l.client.silent) })
	var sent atomic.Bool
	lost := lostOf(req.Context())
	lost.failure = nil // superseded by this attempt
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(i httptrace.WroteRequestInfo) { sent.Store(i.Err == nil) }})
	resp, err := l.next.RoundTrip(req.WithContext(traced))
	timer.Stop()
	lost.count(sent.Load(), resp)
	if err != nil {
		defer cancel(nil)
		return nil, idleCause(ctx, err)
	}

	resp.Body = &idleBody{resp.Body, ctx, cancel, timer, l.client.endpoint.Idle}
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		moveRetryDelay(resp) // the library reads Retry-After
	}

	return resp, nil
}

// retryDelay matches the retry delay in error bodies of Google's servers.
var retryDelay = regexp.MustCompile(`"retryDelay":\s*"([0-9.]+)s"`)

// moveRetryDelay copies a retry delay from the body to the Retry-After header.
func moveRetryDelay(resp *http.Response) {
	if _, asked := retryAfter(resp); asked {
		return
	}

	text := peekBody(resp)
	if m := retryDelay.FindSubmatch(text); m != nil {
		resp.Header.Set("Retry-After", string(m[1]))
	} else if wait := namedWait(string(text), time.Now()); wait > 0 {
		resp.Header.Set("Retry-After", fmt.Sprintf("%.3f", wait.Seconds()))
	}
}

// Some servers give the delay only in the message: "Please try again in 6h13m20s", "You will regain
// access on 2026-12-01 at 00:00 UTC".
var (
	namedSpan    = regexp.MustCompile(`(?i)\b(?:again|retry|retrying|resets?) (?:in|after) (?:about )?((?:\d+(?:\.\d+)? ?(?:ms|milliseconds?|seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|[smhd])\b,? ?(?:and )?|\d+(?:\.\d+)?(?:ms|[smhd]))+)`)
	namedPart    = regexp.MustCompile(`(?i)(\d+(?:\.\d+)?) ?(ms|mil|s|m|h|d)`)
	namedInstant = regexp.MustCompile(`(?i)\bregain access on (\d{4}-\d\d-\d\d)(?: at (\d\d:\d\d) UTC)?`)
)

// longestNamed is the longest accepted retry delay, because the model is paused for that time.
const longestNamed = 31 * 24 * time.Hour

// namedWait returns the retry delay given in a message, or 0 if there is none.
func namedWait(message string, now time.Time) time.Duration {
	wait := time.Duration(0)
	if m := namedSpan.FindStringSubmatch(message); m != nil {
		units := map[string]time.Duration{"ms": time.Millisecond, "mil": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}
		for _, part := range namedPart.FindAllStringSubmatch(m[1], -1) {
			n, err := strconv.ParseFloat(part[1], 64)
			if err != nil || n > longestNamed.Seconds()*1000 {
				return 0
			}
			wait += time.Duration(n * float64(units[strings.ToLower(part[2])]))
		}
	} else if m := namedInstant.FindStringSubmatch(message); m != nil {
		at, err := time.Parse("2006-01-02 15:04", m[1]+" "+cmp.Or(m[2], "00:00"))
		if err != nil {
			return 0
		}
		wait = at.Sub(now)
	}
	return min(max(wait, 0), longestNamed)
}

// peekBody returns the beginning of a body without consuming it. The next reader of the body gets
// the read error.
func peekBody(resp *http.Response) []byte {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	resp.Body = &readCloser{io.MultiReader(bytes.NewReader(text), resp.Body), resp.Body}
	return text
}

// readCloser is a response body whose beginning was read and put back.
type readCloser struct {
	io.Reader
	io.Closer
}

// idleCause returns the idle timeout if it cancelled the context, and otherwise err.
func idleCause(ctx context.Context, err error) error {
	var idle *idleTimeout
	if errors.As(context.Cause(ctx), &idle) {
		return idle
	}
	return err
}

type idleBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration
}

// Read implements io.Reader.
func (b *idleBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.limit)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = idleCause(b.ctx, err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *idleBody) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.ReadCloser.Close()
}
