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

// Route is one operation of the API. Requests are checked against its fields before its handler is
// called. /v1/openapi.json is generated from them.
type Route struct {
	Method  string // such as "GET" or "POST"
	Path    string // pattern of http.ServeMux, such as /v1/runs/{id}
	Summary string // description in a sentence
	Query   []Param
	Header  []Param
	Body    Content   // request body; Type is nil without a body
	Answer  []Content // successful responses, selected by Accept
	// Local restricts the route to the socket of the home, so only the owner of the home can use
	// it.
	Local   bool
	handler http.Handler
}

// Param is a parameter of the query. An empty value is the same as an absent one.
type Param struct {
	Name        string
	Kind        ParamKind
	Values      []string // allowed values; nil means any value of the kind
	Many        bool     // it may occur several times
	Most        int64    // maximum value of a count; 0 means any
	Description string
}

// ParamKind is the format of a parameter.
type ParamKind string

// Kinds of parameters.
const (
	ParamText   ParamKind = "text"
	ParamCount  ParamKind = "count"  // a number from 1
	ParamCursor ParamKind = "cursor" // an id after which a listing continues; 0 means the start
	ParamTime   ParamKind = "time"   // RFC 3339
	ParamFlag   ParamKind = "flag"   // true, false, 1 or 0
)

// Content is the content of a request or response.
type Content struct {
	Media string
	Type  reflect.Type // type of the JSON value or of each line; nil for bytes
}

// Limit returns the maximum size of a request body in bytes.
func (r Route) Limit() int64 {
	if r.Body.Media == mediaBytes {
		return maxImport
	}
	return maxBody
}

func (r Route) takesNothing() bool {
	return r.Body.Media == "" || r.Body.Type == reflect.TypeFor[api.Nothing]()
}

// get returns a route that responds with a T as JSON.
func get[T any](path, says string, handler http.Handler, query ...Param) Route {
	return Route{Method: http.MethodGet, Path: path, Summary: says, Query: query, Answer: []Content{jsonOf[T]()}, handler: handler}
}

// post returns a route that takes an In as JSON and responds with an Out.
func post[In, Out any](path, says string, handler http.Handler) Route {
	return Route{Method: http.MethodPost, Path: path, Summary: says, Body: jsonOf[In](), Answer: []Content{jsonOf[Out]()}, handler: handler}
}

// work returns a route that takes an In as JSON and responds with lines that end in an Out.
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

// local restricts routes to the socket.
func local(routes ...Route) []Route {
	for i := range routes {
		routes[i].Local = true
	}
	return routes
}

// admit returns a handler that checks requests before it calls the route's handler.
func (s *responder) admit(route Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := route.refusal(r); err != nil {
			s.fail(w, r, err)
			return
		}

		r.Body = http.MaxBytesReader(w, r.Body, route.Limit())
		// Refuse an unexpected body instead of ignoring it, because the client expects an effect.
		if route.takesNothing() && r.ContentLength != 0 {
			if err := read(r, &api.Nothing{}); err != nil {
				s.fail(w, r, err)
				return
			}
		}
		route.handler.ServeHTTP(w, r)
	})
}

// refusal returns an error if a request is invalid, without reading its body. Otherwise it returns
// nil.
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

// checkMedia refuses a body without the media type of the route. A foreign web page can send that
// type only after a preflight request.
func (r Route) checkMedia(req *http.Request) error {
	want := r.Body.Media
	if want == "" {
		want = mediaJSON
	}
	if req.ContentLength == 0 {
		return nil // the handler reports what is missing
	}

	is, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil || is != want {
		return &api.Error{Status: http.StatusUnsupportedMediaType, Message: "the request must be " + want + ", not " + strconv.Quote(req.Header.Get("Content-Type")), Usage: true}
	}
	return nil
}

// checkQuery refuses invalid values and unknown names. A name that is misspelt or too new for this
// daemon must not be silently ignored.
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

// flag returns the value of a flag that was checked.
func flag(r *http.Request, name string) bool {
	on, err := strconv.ParseBool(r.URL.Query().Get(name))
	return err == nil && on
}

// number returns the value of a count or cursor that was checked.
func number(r *http.Request, name string, fallback int64) int64 {
	if n, err := strconv.ParseInt(r.URL.Query().Get(name), 10, 64); err == nil {
		return n
	}
	return fallback
}

// since returns a time that was checked, or the zero time.
func since(r *http.Request) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, r.URL.Query().Get("since"))
	return t
}

// parseID parses the number of an item. The error names the command that lists the numbers.
func parseID(written, thing, see string) (int64, error) {
	n, err := strconv.ParseInt(written, 10, 64)
	if err != nil || n < 1 {
		_, name, _ := strings.Cut(thing, " ")
		return 0, usage("%q is not %s; %ss have numbers, see: %s", written, thing, name, see)
	}
	return n, nil
}

// withID passes the number in the path of a request to answer.
func withID[T any](thing, see string, answer func(context.Context, int64) (T, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		n, err := parseID(r.PathValue("id"), thing, see)
		if err != nil {
			return nil, err
		}
		return answer(r.Context(), n)
	}
}

// withIDBody passes the number in the path of a request, and its body, to answer.
func withIDBody[In, T any](thing, see string, answer func(context.Context, int64, In) (T, error)) func(*http.Request) (any, error) {
	return withBody(func(r *http.Request, in In) (any, error) {
		return withID(thing, see, func(ctx context.Context, n int64) (T, error) { return answer(ctx, n, in) })(r)
	})
}

// conflict returns an error for a request that is not possible in the current state.
func conflict(format string, args ...any) error {
	return &api.Error{Status: http.StatusConflict, Message: fmt.Sprintf(format, args...)}
}

func tooLarge(limit int64) error {
	return &api.Error{Status: http.StatusRequestEntityTooLarge, Message: "the request has more than " + strconv.FormatInt(limit, 10) + " bytes", Usage: true}
}

// otherMethod responds to requests with a method that the path does not support.
func (s *responder) otherMethod(methods []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		allow := strings.Join(methods, ", ")
		w.Header().Set("Allow", allow)
		s.fail(w, r, &api.Error{Status: http.StatusMethodNotAllowed, Message: r.URL.Path + " takes " + allow + ", not " + r.Method, Usage: true})
	})
}

// idempotencyKey is the header with the client's key of a request. It allows a client to repeat
// the request if it got no response.
const idempotencyKey = "Idempotency-Key"

// maxKey is the maximum length of an idempotency key in bytes.
const maxKey = 200

// once makes a route accept an Idempotency-Key.
func (r Route) once() Route {
	r.Header = append(r.Header, Param{Name: idempotencyKey, Kind: ParamText, Description: "1 to 200 plain characters: the same request with the same key is the same run, as long as that is kept"})
	return r
}

// readKey reads the Idempotency-Key of a request for a run, if there is one.
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
