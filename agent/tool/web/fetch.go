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
	limit        = 30 * time.Second // with all redirects
	maxRedirects = 5
	// maxAnswer is how much of an answer is read, in bytes after decompression.
	maxAnswer = 2 << 20
	// margin is read beyond that and dropped later: a secret that is cut in two would not be redacted.
	margin = 16 << 10
)

// answer is the answer of the last server.
type answer struct {
	target      target
	status      int
	header      http.Header
	body        []byte
	truncated   bool     // there was more
	broken      bool     // the connection ended early
	notFollowed string   // why a redirect was not followed
	warnings    []string // for the caller
}

// errTooSlow is the cause of a call that took too long.
var errTooSlow = fmt.Errorf("no answer within %s", limit)

// roundTrips sends a request and follows its redirects. The authorizer has decided on the first
// address; each later one must be granted.
func (f *fetcher) roundTrips(ctx context.Context, q request, secrets []tool.SecretGrant) (answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTooSlow)
	defer cancel()

	var out answer
	for hop := 0; ; hop++ {
		resp, err := f.send(ctx, q, secrets)
		// Earlier requests were made, so the call is answered with the redirect, not refused.
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
			// Half a page is better than none; without a body it is as if the server had not answered.
			if len(out.body) == 0 || q.method == "HEAD" {
				return out, f.describe(ctx, q.target, err)
			}
			out.broken = !out.truncated
			out.warnings = append(out.warnings, "the answer broke off: "+f.describe(ctx, q.target, err).Error())
		}

		return out, nil
	}
}

// send makes one connection for one request, because what dial allows depends on the request.
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
		return nil, &refusedError{"the request cannot be made"} // the error itself would quote the URL with its secrets
	}

	req.URL, req.Header = u, header // u itself: parsing its text again could escape the path differently
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "rouse")
	}

	resp, err := f.transport(q.target, access).RoundTrip(req)
	if err != nil {
		return nil, f.describe(ctx, q.target, err)
	}

	return resp, nil
}

// transport makes one connection to the server of t, at an address that is allowed.
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

// redirect returns the request that an answer redirects to, without a URL if it is not a redirect.
// why says why it is not followed.
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
	// What was protected on the way would be readable from here on.
	case q.target.url.Scheme == "https" && to.url.Scheme != "https":
		return next, "it leads from https to http"
	}

	next = request{target: to, method: q.method, headers: q.headers, body: q.body}
	// As browsers do: 303 becomes a GET, and so does a POST after 301 and 302.
	if resp.StatusCode == http.StatusSeeOther && q.method != "HEAD" || resp.StatusCode < 303 && q.method == "POST" {
		next.method, next.body = "GET", ""
	}

	// To another origin go only headers that cannot be credentials.
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

// refusedError is a refusal that repeating the call would not change.
type refusedError struct{ why string }

func (e *refusedError) Error() string { return e.why }

// unreachableError says that a server gave no answer; a later try may succeed.
type unreachableError struct{ why string }

func (e *unreachableError) Error() string { return e.why }

// describe says why there was no answer. The errors of net/http quote the URL, with its secrets.
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
