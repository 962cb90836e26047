package web

import (
	"cmp"
	"context"
	"crypto/x509"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/text"
)

//go:embed web_fetch.md
var fetchText string

// fetchSpec is the spec of web_fetch. Its timeout exceeds the limit of a call, so that the call can
// still return its own error.
var fetchSpec = tool.Spec{
	Name: "web_fetch", Description: fetchText, Effect: domain.EffectExternal, Class: tool.ClassOther, Scope: tool.ScopeOutside, Writes: tool.WritesElsewhere,
	Example: `{"url":"https://example.com/prices.html"}`, Args: reflect.TypeFor[args](), Requires: tool.RequiresNetwork, Reports: tool.ReportsStatus, ReadsOnly: reads, Timeout: limit + limit/2, Enum: map[string][]string{"format": {"markdown", "source"}}, Core: true,
}

// Specs returns the specs of all tools in this package.
func Specs() tool.Specs { return tool.Specs{fetchSpec} }

// Options configures the tool of one run.
type Options struct {
	Grants  []Grant
	Secrets []tool.SecretGrant
	// Addresses are URLs that the agent's owner wrote. A request to one of them cannot carry data
	// that a run has read.
	Addresses []string
	Redact    func(text string) string // replaces secrets in a response; optional
	Tokens    Tokens
	Resolver  *net.Resolver  // nil means the system's resolver
	RootCAs   *x509.CertPool // nil means the system's certificates
}

// Tokens gives access to secrets that are tokens of sign-ins.
type Tokens struct {
	Value   func(ctx context.Context, name string) (string, error)
	Refuses func(url string) string // returns the reason a canonical URL gets no token, or ""
}

// fetcher is the state of the tool for one run.
type fetcher struct {
	rules    []rule
	secrets  []tool.SecretGrant
	known    map[string]bool // Options.Addresses in canonical form
	tokens   Tokens
	redact   func(string) string
	resolver *net.Resolver
	rootCAs  *x509.CertPool
	refuses  func(method, url string) string // returns the reason a request may not be made, or ""; optional

	mu     sync.Mutex
	recent []cachedAnswer // latest answers, newest first
}

// cachedAnswer is an answer that can be read page by page.
type cachedAnswer struct {
	request string
	result  result
	text    readable
	partial string // reason the answer is incomplete, or ""
}

// maxCached limits the number of cached answers.
const maxCached = 4

// Tools returns web_fetch, or no tool if there are no grants.
func Tools(o Options) ([]tool.Tool, error) {
	if len(o.Grants) == 0 {
		return nil, nil
	}

	f, err := newFetcher(o)
	if err != nil {
		return nil, err
	}

	spec := fetchSpec
	spec.Description += f.grantsText()
	spec.Access = tool.AccessOf(f.need)
	fetch, err := tool.Define(spec, f.fetch)

	return []tool.Tool{fetch}, err
}

func newFetcher(o Options) (*fetcher, error) {
	f := &fetcher{secrets: o.Secrets, tokens: o.Tokens, redact: o.Redact, resolver: o.Resolver, rootCAs: o.RootCAs}
	if f.redact == nil {
		f.redact = func(text string) string { return text }
	}

	for _, g := range o.Grants {
		r, err := g.rule()
		if err != nil {
			return nil, fmt.Errorf("the network grant %q: %w", g.Host, err)
		}
		f.rules = append(f.rules, r)
	}

	f.known = map[string]bool{}
	for _, a := range o.Addresses {
		if t, err := parseURL(a); err == nil {
			f.known[t.String()] = true
		}
	}
	return f, nil
}

// grantsText describes the granted hosts and secrets for a model.
func (f *fetcher) grantsText() string {
	var b strings.Builder
	b.WriteString("\nGranted:\n")
	for _, r := range f.rules {
		fmt.Fprintf(&b, "- %s (%s)\n", r.shown, strings.Join(r.methods, ", "))
	}

	for _, s := range f.secrets {
		if s.OnlyTo != "" {
			fmt.Fprintf(&b, "- the secret %s, for %s alone: write %s where it belongs in the headers, the body or the URL\n", s.Name, s.OnlyTo, tool.Placeholder(s.Name))
		}
	}
	return b.String()
}

// reads reports whether a call only reads, according to its method.
func reads(raw json.RawMessage) bool {
	var a RequestArgs
	return json.Unmarshal(raw, &a) == nil && a.Reads()
}

// need returns the labels and grants of a call. The response is untrusted content, and any request
// can send data out. A GET or HEAD to a host granted by name can send data only in its URL and
// headers. It counts as an external effect only if the run holds private data and the owner did not
// write the URL.
func (f *fetcher) need(ctx context.Context, _ tool.Invocation, a args) (tool.Access, error) {
	q, secrets, err := f.parse(a)
	if err != nil {
		return tool.Access{}, err
	}

	n := tool.Access{Action: q.action(), Shown: f.redact(q.shown()), AddsTaint: tool.Untrusted | tool.Outward}
	for _, s := range secrets {
		if !s.Public {
			n.AddsTaint |= tool.Private
			n.NotPrivate = fmt.Sprintf("grants: {secrets: [{name: %s, only_to: %q, private: false}]}", s.Name, s.OnlyTo)
		}
	}

	access := f.access(q.target, q.method)
	if access.named && q.safe() {
		n.AddsTaint &^= tool.Outward
		n.OnlyAddress = len(q.headers) > 0 || !f.known[q.target.String()]
	}
	if !access.granted {
		n.MissingGrant = fmt.Sprintf("%s %s is not among the grants of this agent (grants.network)", q.method, q.target.url.Host)
		n.Grant = fmt.Sprintf("grants: {network: [{host: %q, methods: [%s]}]}", q.target.url.Host, q.method)
	}

	n.Bind = func(n tool.Access) (tool.Access, error) {
		if f.leadsInwards(ctx, q.target, access) {
			return n, tool.Refuse(tool.KindRejected, "%s", &privateAddrError{to: q.target})
		}
		return n, nil
	}
	return n, nil
}

// Foresee returns the need of a planned request, with the reason it is refused or the grant it
// lacks. It does not resolve names.
func Foresee(grants []Grant, secrets []tool.SecretGrant, url, method string) tool.Access {
	f := &fetcher{secrets: secrets, redact: func(text string) string { return text }}
	for _, g := range grants {
		if r, err := g.rule(); err == nil { // invalid grants are rejected when the configuration is loaded
			f.rules = append(f.rules, r)
		}
	}
	n, _ := tool.RefusedAccess(f.need(context.Background(), tool.Invocation{}, args{URL: url, Method: method}))
	return n
}

// parse converts arguments into a request that can be sent once it is approved.
func (f *fetcher) parse(a args) (q request, secrets []tool.SecretGrant, err error) {
	rejected := func(why string) (request, []tool.SecretGrant, error) {
		return q, nil, tool.Refuse(tool.KindRejected, "%s", f.redact(why))
	}
	if q, err = newRequest(a); err != nil {
		if refusal, ok := errors.AsType[*tool.Refusal](err); ok {
			refusal.Message = f.redact(refusal.Message)
		}
		return q, nil, err
	}
	switch {
	case a.Offset < 0:
		return q, nil, tool.Refuse(tool.KindInvalidArgs, "offset is less than 0").WithField("offset", "0 or next_offset")
	case a.Offset > 0 && !q.safe():
		return q, nil, tool.Refuse(tool.KindInvalidArgs, "a %s is not made again to read on", q.method).WithField("offset", "0")
	}
	if f.refuses != nil {
		if why := f.refuses(q.method, q.target.String()); why != "" {
			return rejected(why)
		}
	}

	// An IP address can be checked now, a name only when it is resolved (see dial).
	access := f.access(q.target, q.method)
	if q.target.addr.IsValid() && !access.allows(q.target.addr) {
		return q, nil, tool.Refuse(tool.KindRejected, "%s", &privateAddrError{q.target, q.target.addr})
	}
	if secrets, err = f.secretsIn(q); err == nil {
		err = f.checkSecrets(q.target, access, secrets)
	}
	if err != nil {
		return rejected(err.Error())
	}
	return q, secrets, nil
}

// result is the result of a call.
type result struct {
	URL         string            `json:"url"`
	Status      int               `json:"status"`
	ContentType string            `json:"content_type,omitempty"`
	Title       string            `json:"title,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"` // headers needed to continue, see shownHeaders
	Text        string            `json:"text"`
	Truncated   bool              `json:"truncated"`
	NextOffset  int               `json:"next_offset,omitempty"`
}

// shownHeaders are the headers of a response that a caller needs to continue.
var shownHeaders = []string{"Content-Length", "Etag", "Last-Modified", "Link", "Location", "Retry-After"}

const (
	defaultChars = 20_000
	maxChars     = 100_000
)

func (f *fetcher) fetch(ctx context.Context, in tool.Invocation, a args) (tool.Envelope, error) {
	q, secrets, err := f.parse(a)
	if err != nil {
		return tool.Envelope{}, err
	}
	if a.MaxChars <= 0 {
		a.MaxChars = defaultChars
	}

	source := a.Format == "source"
	// Further pages come from the cached answer, because the server may respond differently now.
	k, found := f.cached(q, source, a.Offset)
	if !found {
		ans, err := f.roundTrips(ctx, q, secrets)
		if err != nil {
			return f.failure(ctx, err)
		}
		k = f.cache(q, source, ans)
	}

	res := k.result
	res.Text, res.NextOffset = page(k.text.body, a.Offset, min(a.MaxChars, maxChars))
	res.Truncated = res.NextOffset > 0
	warnings := k.text.warnings
	if in.Requires(a.MustSucceed) {
		if e := k.failure(); !e.OK {
			e.Warnings = warnings
			return e, nil
		}
	}

	if n := utf8.RuneCountInString(k.text.body); a.Offset > n {
		warnings = append(slices.Clone(warnings), fmt.Sprintf("there is nothing at offset %d: it has %d characters", a.Offset, n))
	}

	return tool.Success(res, warnings...), nil
}

// failure returns the result of a call if the server did not respond.
func (f *fetcher) failure(ctx context.Context, err error) (tool.Envelope, error) {
	switch {
	case errors.As(err, new(*refusedError)):
		return tool.Failure(tool.KindRejected, "%s", f.redact(err.Error())), nil
	case errors.As(err, new(*unreachableError)):
		return tool.Failure(tool.KindUnavailable, "%s", f.redact(err.Error())), nil
	case ctx.Err() != nil:
		return tool.Failure(tool.KindExecutionError, "cancelled: %v", context.Cause(ctx)), nil //nolint:nilerr // the run ends, the host is not broken
	}
	return tool.Envelope{}, err
}

// failure returns the result of a call with must_succeed. It is a failure if the status is 400 or
// above or the answer is incomplete.
func (k cachedAnswer) failure() tool.Envelope {
	switch status := statusText(k.result.Status); {
	case k.result.Status >= 400:
		return tool.Failure(statusKind(k.result.Status), "%s answered %s: %s", k.result.URL, status, excerpt(k.text.body))
	case k.partial != "":
		return tool.Failure(tool.KindUnavailable, "%s answered %s, and %s", k.result.URL, status, k.partial)
	}
	return tool.Envelope{OK: true}
}

// cache stores an answer, so that reading further pages needs no new request.
func (f *fetcher) cache(q request, source bool, a answer) cachedAnswer {
	k := cachedAnswer{request: fmt.Sprint(source, q.action()), text: f.read(a, source)}
	k.result = result{URL: f.redact(a.target.String()), Status: a.status, ContentType: k.text.kind, Title: f.redact(k.text.title), Headers: map[string]string{}}
	for _, name := range shownHeaders {
		if value := a.header.Get(name); value != "" {
			k.result.Headers[strings.ToLower(name)] = f.redact(strings.ToValidUTF8(value, "\ufffd"))
		}
	}

	if a.broken {
		k.partial = "the answer broke off"
	}
	if a.notFollowed != "" {
		k.partial = "the redirect was not followed: " + f.redact(a.notFollowed)
		k.text.warnings = append(k.text.warnings, k.partial)
	}

	if a.status >= 400 {
		k.text.warnings = append(k.text.warnings, "the server answered "+statusText(a.status))
	}

	if q.safe() { // only safe requests can be read page by page
		f.mu.Lock()
		defer f.mu.Unlock()
		f.recent = append([]cachedAnswer{k}, f.recent[:min(len(f.recent), maxCached-1)]...)
	}

	return k
}

// cached returns the latest answer to a request if the call asks for a further page.
func (f *fetcher) cached(q request, source bool, offset int) (cachedAnswer, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.recent, func(k cachedAnswer) bool { return k.request == fmt.Sprint(source, q.action()) })
	if offset == 0 || i < 0 {
		return cachedAnswer{}, false
	}
	return f.recent[i], true
}

// statusKind returns the kind of failure for an HTTP status.
func statusKind(status int) tool.Kind {
	switch {
	case status == http.StatusNotFound || status == http.StatusGone:
		return tool.KindNotFound
	case status == http.StatusTooManyRequests || status >= 500:
		return tool.KindUnavailable
	}
	return tool.KindExecutionError
}

func statusText(status int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status)))
}

// excerpt returns the beginning of a body, for an error message.
func excerpt(body string) string {
	return text.Truncate(cmp.Or(strings.TrimSpace(body), "without a word"), 2000)
}
