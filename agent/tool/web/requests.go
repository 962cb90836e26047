package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/internal/urlpath"
)

// Requests sends the requests of a module. Like web_fetch it applies the agent's grants, and in
// addition the rules of the module's manifest. It does not convert responses.
type Requests struct{ fetcher *fetcher }

// RequestArgs is one request. It may contain placeholders for secrets.
type RequestArgs struct {
	URL     string            `json:"url"`
	Method  string            `json:"method,omitempty"` // "" means GET
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
}

// Response is the final response.
type Response struct {
	URL        string            `json:"url"`
	Status     int               `json:"status"`
	StatusText string            `json:"statusText"`
	OK         bool              `json:"ok"`      // status 200 to 299
	Headers    map[string]string `json:"headers"` // lower-case names; several values of one name are joined by commas
	Body       string            `json:"body"`    // in UTF-8, without secrets
}

// NewRequests returns a Requests. It needs at least one grant. refuses returns the reason a granted
// request must not be sent, or "". It is called for the request and for each redirect, with the
// canonical URL.
func NewRequests(o Options, refuses func(method, url string) string) (*Requests, error) {
	if len(o.Grants) == 0 {
		return nil, errors.New("web: requests need a grant of a host")
	}

	f, err := newFetcher(o)
	if err != nil {
		return nil, err
	}
	f.refuses = refuses
	return &Requests{f}, nil
}

// Need returns the labels and grants that a request needs.
func (r *Requests) Need(ctx context.Context, in tool.Invocation, a RequestArgs) (tool.Access, error) {
	return r.fetcher.need(ctx, in, a.args())
}

// Send sends a request and follows its redirects. A status of 400 or above does not fail the call.
// A redirect that is not followed, an incomplete response and a response that is not text do.
func (r *Requests) Send(ctx context.Context, a RequestArgs) (tool.Envelope, error) {
	f := r.fetcher
	q, secrets, err := f.parse(a.args())
	if err == nil {
		secrets, err = f.withTokens(ctx, secrets)
	}
	if err != nil {
		return tool.Envelope{}, err
	}
	ans, err := f.roundTrips(ctx, q, secrets)
	if err != nil {
		return f.failure(ctx, err)
	}

	text := f.read(ans, true)
	switch {
	case ans.notFollowed != "":
		return tool.Failure(tool.KindRejected, "the redirect of %s was not followed: %s", f.redact(q.target.String()), f.redact(ans.notFollowed)), nil
	case ans.broken:
		return tool.Failure(tool.KindUnavailable, "the answer of %s broke off", f.redact(q.target.String())), nil
	case ans.truncated:
		return tool.Failure(tool.KindExecutionError, "the answer of %s is longer than %d MiB", f.redact(q.target.String()), maxAnswer>>20), nil
	case len(ans.body) > 0 && text.body == "" && len(text.warnings) > 0:
		return tool.Failure(tool.KindExecutionError, "%s", strings.Join(text.warnings, "; ")), nil
	}

	out := Response{URL: f.redact(ans.target.String()), Status: ans.status, StatusText: http.StatusText(ans.status), OK: ans.status >= 200 && ans.status < 300, Headers: map[string]string{}, Body: text.body}
	for _, name := range slices.Sorted(maps.Keys(ans.header)) {
		if name != "Set-Cookie" { // browsers hide Set-Cookie from scripts, too
			out.Headers[strings.ToLower(name)] = f.redact(strings.ToValidUTF8(strings.Join(ans.header[name], ", "), "\ufffd"))
		}
	}
	return tool.Success(out), nil
}

func (a RequestArgs) args() args {
	return args{URL: a.URL, Method: a.Method, Headers: a.Headers, Body: a.Body}
}

// Reads reports whether a request only reads, according to its method.
func (a RequestArgs) Reads() bool {
	return request{method: strings.ToUpper(cmp.Or(a.Method, "GET"))}.safe()
}

// MatchesPattern reports whether a canonical URL matches a pattern, in which * stands for any text.
// Host, path and query are compared separately, so that one part cannot match the pattern of
// another. A pattern without a query matches any query if it ends in *. An ambiguous path, which
// servers interpret differently, matches only a pattern that covers all paths.
func MatchesPattern(pattern, url string) bool {
	if pattern == "*" {
		return true
	}

	scheme, rest, ok := strings.Cut(pattern, "://")
	gotScheme, gotRest, _ := strings.Cut(url, "://")
	host, path, hasPath := strings.Cut(rest, "/")
	gotHost, gotPath, _ := strings.Cut(gotRest, "/")
	switch {
	case !ok || !matchStars(strings.ToLower(scheme), gotScheme) || !matchStars(strings.ToLower(host), gotHost):
		return false
	case !hasPath: // host only: https://example.com matches its front page, https://* everything
		return gotPath == "" || strings.HasSuffix(host, "*")
	case path == "*":
		return true
	}

	path, query, hasQuery := strings.Cut(path, "?")
	gotPath, gotQuery, _ := strings.Cut(gotPath, "?")
	if !hasQuery && strings.HasSuffix(path, "*") {
		query = "*"
	}
	return urlpath.Ambiguous("/"+gotPath) == "" && matchStars(path, gotPath) && matchStars(query, gotQuery)
}

// AmbiguousPath returns the reason path rules do not cover a canonical URL, or "".
func AmbiguousPath(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	_, path, _ := strings.Cut(rest, "/")
	path, _, _ = strings.Cut(path, "?")
	if part := urlpath.Ambiguous("/" + path); part != "" {
		return fmt.Sprintf("; its path holds %s, which servers read in different ways, so that no rule about a path covers it: write the path without it", part)
	}
	return ""
}

// NamesHost reports whether a pattern names a specific host, or the names below a domain of at
// least two labels.
func NamesHost(pattern string) bool {
	_, rest, ok := strings.Cut(pattern, "://")
	host, _, _ := strings.Cut(rest, "/")
	if at := strings.LastIndex(host, "*"); ok && at >= 0 {
		below, ok := strings.CutPrefix(host[at+1:], ".")
		return ok && strings.Contains(below, ".")
	}
	return ok && host != ""
}

// matchStars reports whether a text matches a pattern in which each * stands for any text.
func matchStars(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}

	rest, ok := strings.CutPrefix(text, parts[0])
	if !ok {
		return false
	}
	for _, part := range parts[1 : len(parts)-1] {
		if _, rest, ok = strings.Cut(rest, part); !ok {
			return false
		}
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}
