package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"rouse/agent/tool"
	"rouse/internal/dial"
)

// Limits of one call.
const (
	limit        = 30 * time.Second // including all redirects
	maxRedirects = 5
	// maxAnswer limits the bytes read of a response, after decompression.
	maxAnswer = 2 << 20
	// margin is read in addition and dropped after redaction. Without it, a secret cut in two would
	// not be redacted.
	margin = 16 << 10
)

// answer is the final response.
type answer struct {
	target      target
	status      int
	header      http.Header
	body        []byte
	truncated   bool     // the body is longer than the limit
	broken      bool     // the connection ended early
	notFollowed string   // reason for not following a redirect
	warnings    []string // for the caller
}

// errTooSlow is the cancellation cause of a call that timed out.
var errTooSlow = fmt.Errorf("no answer within %s", limit)

// roundTrips sends a request and follows its redirects. The authorizer has approved the first URL.
// Each later URL must be granted.
func (f *fetcher) roundTrips(ctx context.Context, q request, secrets []tool.SecretGrant) (answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTooSlow)
	defer cancel()

	var out answer
	for hop := 0; ; hop++ {
		resp, err := f.send(ctx, q, secrets)
		// Earlier requests have been sent, so return the redirect instead of an error.
		if no, ok := errors.AsType[*refusedError](err); ok && hop > 0 {
			out.notFollowed = no.why
			return out, nil
		}
		if err != nil {
			return answer{}, err
		}

		out = answer{target: q.target, status: resp.StatusCode, header: resp.Header}
		next, why := f.redirect(q, resp, secrets)
		if why == "" && next.target.url != nil && hop == maxRedirects {
			why = fmt.Sprintf("there were more than %d redirects", maxRedirects)
		}

		if why == "" && next.target.url != nil {
			resp.Body.Close()
			q = next
			continue
		}

		out.notFollowed = why
		out.body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+margin))
		resp.Body.Close()
		out.truncated = len(out.body) == maxAnswer+margin
		if err != nil {
			// A partial page is useful; without a body the response counts as missing.
			if len(out.body) == 0 || q.method == "HEAD" {
				return out, f.describe(ctx, q.target, err)
			}
			out.broken = !out.truncated
			out.warnings = append(out.warnings, "the answer broke off: "+f.describe(ctx, q.target, err).Error())
		}

		return out, nil
	}
}

// send sends one request over its own connection, because the allowed addresses depend on the
// request.
func (f *fetcher) send(ctx context.Context, q request, secrets []tool.SecretGrant) (*http.Response, error) {
	access := f.access(q.target, q.method)
	if len(secrets) > 0 && q.hasPlaceholders(secrets) {
		if err := f.checkSecrets(q.target, access, secrets); err != nil {
			return nil, &refusedError{err.Error()}
		}
	}

	u, header, body, err := q.withSecrets(secrets)
	if err != nil {
		return nil, &refusedError{err.Error()}
	}

	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}

	req, err := http.NewRequestWithContext(ctx, q.method, u.String(), content)
	if err != nil {
		return nil, &refusedError{"the request cannot be made"} // the original error would quote the URL with its secrets
	}

	req.URL, req.Header = u, header // use u as is: parsing its text again could escape the path differently
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "rouse")
	}

	resp, err := f.transport(q.target, access).RoundTrip(req)
	if err != nil {
		return nil, f.describe(ctx, q.target, err)
	}

	return resp, nil
}

// transport returns a transport that connects to the server of t at an allowed address.
func (f *fetcher) transport(t target, a access) *http.Transport {
	pool := dial.Pool(f.dial(t, a), f.rootCAs)
	pool.TLSClientConfig.ServerName = t.host
	return pool
}

// hasPlaceholders reports whether a request has a placeholder that would be filled in.
func (q request) hasPlaceholders(secrets []tool.SecretGrant) bool {
	texts := []string{q.body}
	if q.fromCall {
		texts = append(texts, q.target.url.EscapedPath(), q.target.url.RawQuery)
	}

	for _, value := range q.headers {
		texts = append(texts, value)
	}
	return len(tool.Placeholders(strings.Join(texts, "\n"))) > 0
}

// redirect returns the request that follows a redirect. Its target is empty if the response is not
// a redirect or must not be followed. In the latter case, why is the reason.
func (f *fetcher) redirect(q request, resp *http.Response, secrets []tool.SecretGrant) (next request, why string) {
	location := resp.Header.Get("Location")
	if location == "" || !slices.Contains([]int{301, 302, 303, 307, 308}, resp.StatusCode) {
		return next, ""
	}

	u, err := q.target.url.Parse(location)
	if err != nil {
		return next, "its address is not understood"
	}

	to, err := parseURL(u.String())
	switch {
	case err != nil:
		return next, err.Error()
	// The request would lose its encryption.
	case q.target.url.Scheme == "https" && to.url.Scheme != "https":
		return next, "it leads from https to http"
	}

	next = request{target: to, method: q.method, headers: q.headers, body: q.body}
	// Like browsers: 303 becomes a GET, and so does a POST after 301 and 302.
	if resp.StatusCode == http.StatusSeeOther && q.method != "HEAD" || resp.StatusCode < 303 && q.method == "POST" {
		next.method, next.body = "GET", ""
	}

	// Send only headers that cannot be credentials to another origin.
	next.headers = map[string]string{}
	for name, value := range q.headers {
		stays := to.origin() == q.target.origin() || slices.Contains([]string{"Accept", "Accept-Language", "Content-Type", "User-Agent"}, name) && len(tool.Placeholders(value)) == 0
		if stays && (next.body != "" || name != "Content-Type") {
			next.headers[name] = value
		}
	}

	access := f.access(to, next.method)
	switch {
	case to.addr.IsValid() && !access.allows(to.addr):
		return request{}, (&privateAddrError{to, to.addr}).Error()
	case !access.granted:
		return request{}, fmt.Sprintf("%s %s is not granted; to go there, call web_fetch with it", next.method, to)
	case f.refuses != nil && f.refuses(next.method, to.String()) != "":
		return request{}, f.refuses(next.method, to.String())
	}
	if next.hasPlaceholders(secrets) {
		if err := f.checkSecrets(to, access, secrets); err != nil {
			return request{}, err.Error()
		}
	}
	return next, ""
}

// refusedError is an error that repeating the call cannot fix.
type refusedError struct{ why string }

func (e *refusedError) Error() string { return e.why }

// unreachableError is returned if a server does not respond. A later attempt may succeed.
type unreachableError struct{ why string }

func (e *unreachableError) Error() string { return e.why }

// describe returns an error message without the URL. Errors of net/http quote the URL with its
// secrets.
func (f *fetcher) describe(ctx context.Context, t target, err error) error {
	host := t.url.Host
	var inward *dial.AddrError
	switch {
	case errors.As(err, &inward):
		return &refusedError{(&privateAddrError{t, inward.Addr}).Error()}
	case errors.Is(context.Cause(ctx), errTooSlow):
		return &unreachableError{fmt.Sprintf("%s gave no answer within %s", host, limit)}
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}

	said := dial.Describe(host, err)
	switch {
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return &refusedError{said.Error()}
	case said != err: //nolint:errorlint // the same error means that there are no words for it
		return &unreachableError{said.Error()}
	}
	return &unreachableError{fmt.Sprintf("%s gave no answer that is understood: %s", host, f.redact(err.Error()))}
}
