package daemon

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"rouse/cmd/internal/web"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
)

// refused is an invalid request and the expected response.
type refused struct {
	how         string
	method      string // "" means that of the route
	path        string // "" means that of the route, with plausible ids
	contentType string
	body        io.Reader
	change      func(*http.Request)
	want        []int
}

// pageRoutes are the routes on the network besides the API.
var pageRoutes = []web.Route{
	{Method: http.MethodGet, Path: "/"}, {Method: http.MethodGet, Path: "/metrics"}, {Method: http.MethodPost, Path: "/logout"},
	{Method: http.MethodGet, Path: "/runs/{id}"}, {Method: http.MethodGet, Path: "/assets/none.css"}, {Method: http.MethodGet, Path: "/favicon.ico"},
}

// strangers returns requests that are refused for any route.
func strangers() []refused {
	header := func(how, name, value string, want int) refused {
		return refused{how: how, change: func(r *http.Request) { r.Header.Set(name, value) }, want: []int{want}}
	}
	host := func(name string) refused {
		return refused{how: "host " + name, change: func(r *http.Request) { r.Host = name }, want: []int{http.StatusMisdirectedRequest}}
	}

	return []refused{
		{how: "no token", change: func(r *http.Request) { r.Header.Del("Authorization") }, want: []int{http.StatusUnauthorized}},
		header("another token", "Authorization", "Bearer "+strings.Repeat("A", 43), http.StatusUnauthorized),
		header("an empty token", "Authorization", "Bearer ", http.StatusUnauthorized),
		header("the token by another scheme", "Authorization", "Basic cm91c2U6cm91c2U=", http.StatusUnauthorized),
		{how: "a cookie that is none", change: func(r *http.Request) {
			r.Header.Del("Authorization")
			_, port, _ := strings.Cut(r.URL.Host, ":")
			r.AddCookie(&http.Cookie{Name: "rouse_session_" + port, Value: strings.Repeat("A", 43)})
			r.Header.Set("Sec-Fetch-Site", "same-origin")
		}, want: []int{http.StatusUnauthorized}},
		host("evil.example"), host("127.0.0.1"), host("127.0.0.1:1"), host("localhost"), host("127.0.0.1.evil.example:7311"),
		header("another origin", "Origin", "http://evil.example", http.StatusForbidden),
		header("no origin that is one", "Origin", "null", http.StatusForbidden),
		header("the origin of another port", "Origin", "http://127.0.0.1:1", http.StatusForbidden),
		header("another site", "Sec-Fetch-Site", "cross-site", http.StatusForbidden),
		header("another port of this machine", "Sec-Fetch-Site", "same-site", http.StatusForbidden),
	}
}

// wrong returns invalid requests of an authorized caller.
func wrong(route web.Route) (out []refused) {
	other := http.MethodDelete
	out = append(out, refused{how: "method " + other, method: other, want: []int{http.StatusMethodNotAllowed}},
		refused{how: "method PUT", method: http.MethodPut, want: []int{http.StatusMethodNotAllowed}})

	const json = "application/json"
	types := []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonx"}
	if route.Body.Media != json && route.Body.Media != "" {
		types = append(types, json)
	}
	for _, is := range types {
		out = append(out, refused{how: "content type " + is, contentType: is, body: strings.NewReader("{}"), want: []int{http.StatusUnsupportedMediaType}})
	}

	accepted := route.Body.Media
	if accepted == "" {
		accepted = json
	}
	out = append(out, refused{how: "a body that says to be too large", contentType: accepted, body: io.LimitReader(zeros{}, route.Limit()+1), want: []int{http.StatusRequestEntityTooLarge},
		change: func(r *http.Request) { r.ContentLength = route.Limit() + 1; r.Header.Set("Expect", "100-continue") }})
	if accepted == json {
		out = append(out,
			refused{how: "a body that is too large", contentType: json, body: io.LimitReader(spaces{}, route.Limit()+1), want: []int{http.StatusRequestEntityTooLarge}},
			refused{how: "a body that is no JSON", contentType: json, body: strings.NewReader("{"), want: []int{http.StatusBadRequest}},
			refused{how: "a body with what nobody knows", contentType: json, body: strings.NewReader(`{"surely_not":1}`), want: []int{http.StatusBadRequest}})
	}

	path := fill(route.Path)
	query := func(how, text string) {
		out = append(out, refused{how: how, path: path + "?" + text, want: []int{http.StatusBadRequest}})
	}
	query("a name that is none", "surely=not")
	query("a query that is none", "n=%zz")
	query("the token in the query", "token=x")
	for _, p := range route.Query {
		values := map[web.ParamKind][]string{
			web.ParamCount: {"0", "-1", "x", "1e9", "99999999999999999999"}, web.ParamCursor: {"-1", "x", "1 ", "99999999999999999999"},
			web.ParamTime: {"yesterday", "1", "2026-13-01T00:00:00Z"}, web.ParamFlag: {"maybe", "2"},
		}[p.Kind]
		if p.Values != nil {
			values = append(values, "nonsense")
		}
		for _, v := range values {
			query(p.Name+" "+v, p.Name+"="+url.QueryEscape(v))
		}
		if !p.Many {
			query(p.Name+" twice", p.Name+"=1&"+p.Name+"=2")
		}
	}
	if route.Path == "/v1/events" {
		out = append(out, refused{how: "a last event that is none", change: func(r *http.Request) { r.Header.Set("Last-Event-ID", "x") }, want: []int{http.StatusBadRequest}})
	}

	return append(out, wrongIDs(route)...)
}

// wrongIDs returns malformed and unknown ids.
func wrongIDs(route web.Route) (out []refused) {
	for at, name := range wildcard.FindAllString(route.Path, -1) {
		for _, id := range []string{"0", "-1", "999999999", "99999999999999999999", "1x", "x' or '1'='1", "..", "../..", "\x00", "%00", "\u202e", strings.Repeat("9", 5000), "<script>alert(1)</script>"} {
			n := -1
			path := wildcard.ReplaceAllStringFunc(route.Path, func(string) string {
				if n++; n == at {
					return url.PathEscape(id)
				}
				return "1"
			})
			one := refused{how: fmt.Sprintf("%s %.20q", name, id), path: path, want: []int{http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity}}
			if id == ".." { // not an id but the parent folder, for which the router redirects
				one.want = append(one.want, http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusMethodNotAllowed)
			}
			if route.Method == http.MethodPost {
				one.contentType, one.body = route.Body.Media, strings.NewReader("{}")
			}
			out = append(out, one)
		}
	}
	return out
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// TestEveryRouteRefuses checks that every route refuses a wrong token, host, origin, method,
// content type, size, id or cursor, without an effect. It covers all routes of the router.
func TestEveryRouteRefuses(t *testing.T) {
	t.Parallel()
	f := newAPIFixture(t)
	before, err := f.ledger.NewestRun(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	for _, route := range append(f.routes(), pageRoutes...) {
		all := strangers()
		switch {
		case route.Local:
			all = append(all, refused{how: "from the network", want: []int{http.StatusForbidden}})
		case route.Summary != "":
			all = append(all, wrong(route)...)
		}
		for _, r := range all {
			f.refuses(route, r)
		}
	}

	after, err := f.ledger.NewestRun(t.Context())
	if err != nil || after != before {
		t.Errorf("a request that was refused has started run %d, %v", after, err)
	}
	if items, err := f.ledger.Events.List(t.Context(), event.Filter{Limit: 1000}); err != nil || slices.ContainsFunc(items, func(e ledger.Event) bool { return e.Kind == "paused" || e.Kind == "slot.set" }) {
		t.Errorf("a request that was refused has changed something: %+v, %v", items, err)
	}
}

// refuses sends an invalid request and checks the response.
func (f *apiFixture) refuses(route web.Route, r refused) {
	f.t.Helper()
	method, path := r.method, r.path
	if method == "" {
		method = route.Method
	}
	if path == "" {
		path = fill(route.Path)
	}

	resp := f.send(method, path, r.contentType, r.body, r.change)
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	resp.Body.Close()
	if err != nil || !slices.Contains(r.want, resp.StatusCode) {
		f.t.Errorf("%s %s with %s is answered %s, want %v: %.300s %v", route.Method, route.Path, r.how, resp.Status, r.want, text, err)
	}

	h := resp.Header
	if h.Get("Access-Control-Allow-Origin") != "" || !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") || h.Get("X-Content-Type-Options") != "nosniff" ||
		h.Get("Referrer-Policy") != "no-referrer" || strings.Contains(h.Get("Content-Security-Policy"), "unsafe") {
		f.t.Errorf("%s %s with %s: the header %v", route.Method, route.Path, r.how, h)
	}
	if strings.Contains(string(text), "<script>alert") && strings.Contains(h.Get("Content-Type"), "html") {
		f.t.Errorf("%s %s says what it was told as a page: %s", route.Method, route.Path, text)
	}
}
