package web

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"rouse/cmd/internal/access"
	"rouse/cmd/internal/api"
	"rouse/internal/text"
)

const (
	mediaJSON   = "application/json"
	mediaLines  = "application/x-ndjson"
	mediaEvents = "text/event-stream"
	mediaBytes  = "application/octet-stream"
)

// Route is one thing that can be asked of the API. What it says of itself is checked before its handler
// hears of a request, and is what /v1/openapi.json tells.
type Route struct {
	Method  string // "GET", "POST"
	Path    string // as of http.ServeMux, /v1/runs/{id}
	Summary string // what it does, in a sentence
	Query   []Param
	Header  []Param
	Body    Content   // what is sent; its Type is nil where nothing is
	Answer  []Content // what a success is: one, or what Accept chooses among
	// Local says that it is answered on the socket of the home alone: what it does is for who holds the home.
	Local   bool
	handler http.Handler
}

// Param is a value of the query. One that is empty is as one that is absent.
type Param struct {
	Name        string
	Kind        ParamKind
	Values      []string // that there are; nil: any of its kind
	Many        bool     // it may stand several times
	Most        int64    // largest value of a count; 0: any
	Description string
}

// ParamKind is what the values of a parameter look like.
type ParamKind string

// The kinds of parameters.
const (
	ParamText   ParamKind = "text"
	ParamCount  ParamKind = "count"  // a number from 1
	ParamCursor ParamKind = "cursor" // an id from which a listing goes on; 0 is before all
	ParamTime   ParamKind = "time"   // RFC 3339
	ParamFlag   ParamKind = "flag"   // true, false, 1 or 0
)

// Content is what is sent with a request, or answered.
type Content struct {
	Media string
	Type  reflect.Type // of the JSON value, or of each line; nil for bytes
}

// Limit is how many bytes a request may send.
func (r Route) Limit() int64 {
	if r.Body.Media == mediaBytes {
		return maxImport
	}
	return maxBody
}

func (r Route) takesNothing() bool {
	return r.Body.Media == "" || r.Body.Type == reflect.TypeFor[api.Nothing]()
}

// get is a route that answers with a T as JSON.
func get[T any](path, says string, handler http.Handler, query ...Param) Route {
	return Route{Method: http.MethodGet, Path: path, Summary: says, Query: query, Answer: []Content{jsonOf[T]()}, handler: handler}
}

// post is a route that takes an In as JSON, and answers with an Out.
func post[In, Out any](path, says string, handler http.Handler) Route {
	return Route{Method: http.MethodPost, Path: path, Summary: says, Body: jsonOf[In](), Answer: []Content{jsonOf[Out]()}, handler: handler}
}

// work is a route that takes an In as JSON, and answers with lines that end in an Out.
func work[In, Out any](s *responder, path, says string, do func(r *http.Request, in In, progress func(done, of int64)) (Out, error)) Route {
	return Route{Method: http.MethodPost, Path: path, Summary: says, Body: jsonOf[In](), Answer: []Content{linesOf[Out]()}, handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in In
		if err := read(r, &in); err != nil {
			s.fail(w, r, err)
			return
		}
		sendWork(s, w, r, func(progress func(done, of int64)) (Out, error) { return do(r, in, progress) })
	})}
}

func jsonOf[T any]() Content { return Content{mediaJSON, reflect.TypeFor[T]()} }

func linesOf[T any]() Content { return Content{mediaLines, reflect.TypeFor[api.WorkLine[T]]()} }

// local has routes answered on the socket alone.
func local(routes ...Route) []Route {
	for i := range routes {
		routes[i].Local = true
	}
	return routes
}

// admit has a route's handler hear only of requests that are as the route says.
func (s *responder) admit(route Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := route.refusal(r); err != nil {
			s.fail(w, r, err)
			return
		}

		r.Body = http.MaxBytesReader(w, r.Body, route.Limit())
		// What a handler has no use for is looked at all the same: whoever sends it means something by it.
		if route.takesNothing() && r.ContentLength != 0 {
			if err := read(r, &api.Nothing{}); err != nil {
				s.fail(w, r, err)
				return
			}
		}
		route.handler.ServeHTTP(w, r)
	})
}

// refusal says what is wrong with a request before its body is read, nil if nothing is.
func (r Route) refusal(req *http.Request) error {
	if r.Local && access.OnNetwork(req.Context()) {
		return &api.Error{Status: http.StatusForbidden, Message: r.Path + " is answered on the machine of rouse alone, to its commands"}
	}

	if req.ContentLength > r.Limit() {
		return tooLarge(r.Limit())
	}
	if err := r.checkMedia(req); err != nil {
		return err
	}

	return r.checkQuery(req.URL.RawQuery)
}

// checkMedia refuses a body that does not say to be what the route takes. A page of a stranger cannot say so without
// having asked before.
func (r Route) checkMedia(req *http.Request) error {
	want := r.Body.Media
	if want == "" {
		want = mediaJSON
	}
	if req.ContentLength == 0 {
		return nil // the handler says what it misses
	}

	is, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil || is != want {
		return &api.Error{Status: http.StatusUnsupportedMediaType, Message: "the request must be " + want + ", not " + strconv.Quote(req.Header.Get("Content-Type")), Usage: true}
	}
	return nil
}

// checkQuery refuses values that are not of their kinds, and names that the route does not know: one that is misspelt,
// or too new for this daemon, must not be ignored silently.
func (r Route) checkQuery(raw string) error {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return usage("the query was not understood: %v", err)
	}

	for name, values := range query {
		i := slices.IndexFunc(r.Query, func(p Param) bool { return p.Name == name })
		if i < 0 {
			return usage("%s %s takes no %q", r.Method, r.Path, name)
		}
		if p := r.Query[i]; len(values) > 1 && !p.Many {
			return usage("%s is given %d times", name, len(values))
		}
		for _, value := range values {
			if strings.ContainsRune(value, 0) {
				return usage("%s has a NUL character (%%00), which no value has", name)
			}
			if err := r.Query[i].check(value); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p Param) check(value string) error {
	if value == "" {
		return nil
	}
	if p.Values != nil && !slices.Contains(p.Values, value) {
		return usage("%s is one of %s, not %q", p.Name, strings.Join(p.Values, ", "), value)
	}

	switch p.Kind {
	case ParamCount:
		n, err := strconv.ParseInt(value, 10, 64)
		switch {
		case p.Most > 0 && (err != nil || n < 1 || n > p.Most):
			return usage("%s must be a number from 1 to %d, not %q", p.Name, p.Most, value)
		case err != nil || n < 1:
			return usage("%s must be a number from 1, not %q", p.Name, value)
		}
	case ParamCursor:
		if n, err := strconv.ParseInt(value, 10, 64); err != nil || n < 0 {
			return usage("%s must be an id, not %q", p.Name, value)
		}
	case ParamTime:
		if _, err := time.Parse(time.RFC3339Nano, value); err != nil {
			return usage("%s must be an RFC 3339 time, not %q", p.Name, value)
		}
	case ParamFlag:
		if _, err := strconv.ParseBool(value); err != nil {
			return usage("%s must be true or false, not %q", p.Name, value)
		}
	case ParamText:
	}
	return nil
}

// flag reads a parameter that was checked.
func flag(r *http.Request, name string) bool {
	on, err := strconv.ParseBool(r.URL.Query().Get(name))
	return err == nil && on
}

// number reads a count or a cursor that was checked.
func number(r *http.Request, name string, fallback int64) int64 {
	if n, err := strconv.ParseInt(r.URL.Query().Get(name), 10, 64); err == nil {
		return n
	}
	return fallback
}

// since reads a time that was checked, or returns the zero time.
func since(r *http.Request) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, r.URL.Query().Get("since"))
	return t
}

// parseID reads a number that names a thing. The error names the command that lists the numbers.
func parseID(written, thing, see string) (int64, error) {
	n, err := strconv.ParseInt(written, 10, 64)
	if err != nil || n < 1 {
		_, name, _ := strings.Cut(thing, " ")
		return 0, usage("%q is not %s; %ss have numbers, see: %s", written, thing, name, see)
	}
	return n, nil
}

// withID passes the number in the path of a request.
func withID[T any](thing, see string, answer func(context.Context, int64) (T, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		n, err := parseID(r.PathValue("id"), thing, see)
		if err != nil {
			return nil, err
		}
		return answer(r.Context(), n)
	}
}

// withIDBody passes the number in the path of a request, and its body.
func withIDBody[In, T any](thing, see string, answer func(context.Context, int64, In) (T, error)) func(*http.Request) (any, error) {
	return withBody(func(r *http.Request, in In) (any, error) {
		return withID(thing, see, func(ctx context.Context, n int64) (T, error) { return answer(ctx, n, in) })(r)
	})
}

// conflict is the error of a request that does not fit the state of things.
func conflict(format string, args ...any) error {
	return &api.Error{Status: http.StatusConflict, Message: fmt.Sprintf(format, args...)}
}

func tooLarge(limit int64) error {
	return &api.Error{Status: http.StatusRequestEntityTooLarge, Message: "the request has more than " + strconv.FormatInt(limit, 10) + " bytes", Usage: true}
}

// otherMethod answers a request of a path by a method that it does not have.
func (s *responder) otherMethod(methods []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		allow := strings.Join(methods, ", ")
		w.Header().Set("Allow", allow)
		s.fail(w, r, &api.Error{Status: http.StatusMethodNotAllowed, Message: r.URL.Path + " takes " + allow + ", not " + r.Method, Usage: true})
	})
}

// idempotencyKey is the header by which a client names a request, so that it can send it again when it has heard no answer.
const idempotencyKey = "Idempotency-Key"

// maxKey bounds such a name, in bytes.
const maxKey = 200

// once has a route heed an Idempotency-Key.
func (r Route) once() Route {
	r.Header = append(r.Header, Param{Name: idempotencyKey, Kind: ParamText, Description: "1 to 200 plain characters: the same request with the same key is the same run, as long as that is kept"})
	return r
}

// readKey reads the Idempotency-Key of a request for a run, if it has one.
func readKey(r *http.Request, in *api.RunRequest) error {
	keys := r.Header.Values(idempotencyKey)
	if len(keys) == 0 {
		return nil
	}
	if len(keys) > 1 || keys[0] == "" || !text.IsPlain(keys[0], maxKey) {
		return usage("%s must be given once, with 1 to %d plain characters", idempotencyKey, maxKey)
	}
	in.Key = keys[0]
	return nil
}
