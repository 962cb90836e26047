package web

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"rouse/agent/tool"
	"rouse/internal/text"
)

// args are the arguments of web_fetch.
type args struct {
	URL         string            `json:"url" jsonschema:"https:// or http:// and a host that is granted"`
	Method      string            `json:"method,omitempty" jsonschema:"GET when absent; HEAD, POST, PUT, PATCH, DELETE, OPTIONS"`
	Headers     map[string]string `json:"headers,omitempty" jsonschema:"of the request"`
	Body        string            `json:"body,omitempty" jsonschema:"of the request, as it is"`
	JSON        any               `json:"json,omitempty" jsonschema:"instead of body: a value that is sent as JSON"`
	Format      string            `json:"format,omitempty" jsonschema:"of an HTML page: markdown (the default) or source"`
	Offset      int               `json:"offset,omitempty" jsonschema:"character to begin at: next_offset of the call before"`
	MaxChars    int               `json:"max_chars,omitempty" jsonschema:"characters of the answer, default 20000, at most 100000"`
	MustSucceed *bool             `json:"must_succeed,omitempty" jsonschema:"true: a status of 400 and above, a redirect that was not followed, or half an answer is a failure of the call"`
}

const (
	maxBody  = 256 << 10 // bytes of a request
	maxShown = 16 << 10  // bytes of a body shown for approval
)

// forbiddenHeaders are set by the client, or change the framing or the destination of the message.
var forbiddenHeaders = []string{"Accept-Encoding", "Connection", "Content-Length", "Host", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// request is a call in canonical form, with placeholders for secrets.
type request struct {
	target   target
	method   string
	headers  map[string]string // by canonical name
	body     string
	fromCall bool // the URL comes from the call, not from a redirect
}

func newRequest(a args) (request, error) {
	q := request{method: strings.ToUpper(cmp.Or(a.Method, "GET")), headers: map[string]string{}, body: a.Body, fromCall: true}
	refuse := func(field, expected, format string, args ...any) (request, error) {
		return q, tool.Refuse(tool.KindInvalidArgs, field+": "+format, args...).WithField(field, expected)
	}
	if !slices.Contains(Methods, q.method) {
		return refuse("method", "one of "+strings.Join(Methods, ", "), "%q is no method that can be used", a.Method)
	}

	var err error
	if q.target, err = parseURL(a.URL); err != nil {
		return refuse("url", "a URL like https://example.com/page", "%v", err)
	}

	// Compare canonical names: "host" and "Host" are the same header, and neither may be set.
	for name, value := range a.Headers {
		key := textproto.CanonicalMIMEHeaderKey(name)
		switch _, twice := q.headers[key]; {
		case !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value):
			return refuse("headers", "names and values without line breaks", "the header %q cannot be sent", name)
		case slices.Contains(forbiddenHeaders, key):
			return refuse("headers", "other headers", "the header %s is not for a call to give", key)
		case twice:
			return refuse("headers", "each header once", "the header %s is given twice", key)
		}
		q.headers[key] = value
	}

	if a.JSON != nil {
		if a.Body != "" {
			return refuse("json", "one of body and json", "body is given too")
		}
		text, err := json.Marshal(a.JSON)
		if err != nil {
			return refuse("json", "a JSON value", "%v", err)
		}
		q.body = string(text)
		if q.headers["Content-Type"] == "" {
			q.headers["Content-Type"] = "application/json"
		}
	}

	switch {
	// The body of a GET has no defined meaning in HTTP, and servers and proxies treat it
	// differently.
	case q.body != "" && q.safe():
		return refuse("body", "a method like POST", "%s sends none", q.method)
	case len(q.body) > maxBody:
		return refuse("body", "a shorter body", "it has %d bytes, at most %d are sent", len(q.body), maxBody)
	}

	return q, nil
}

// safe reports whether a request only reads.
func (q request) safe() bool { return q.method == "GET" || q.method == "HEAD" }

// action returns the text to which an approval of the request is bound.
func (q request) action() string {
	return fmt.Sprintf("%s %s %q %q", q.method, q.target, q.headers, q.body)
}

// shown returns the request in a form for people.
func (q request) shown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", q.method, q.target)
	for _, name := range slices.Sorted(maps.Keys(q.headers)) {
		fmt.Fprintf(&b, "%s: %s\n", name, q.headers[name])
	}

	switch {
	case len(q.body) > maxShown:
		fmt.Fprintf(&b, "\n%s…\n(%d bytes in all, SHA-256 %x)\n", text.HeadBytes(q.body, maxShown), len(q.body), sha256.Sum256([]byte(q.body)))
	case q.body != "":
		fmt.Fprintf(&b, "\n%s\n", q.body)
	}

	return b.String()
}
