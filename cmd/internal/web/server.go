package web

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"rouse/agentdb"
	"rouse/agentdb/pool"
	"rouse/cmd/internal/api"
	"rouse/internal/ledger"
	"rouse/internal/ledger/store"
	"rouse/internal/live"
)

// Options are the ledger that the API reads, and the backend. The others are optional.
type Options struct {
	Ledger *ledger.Ledger
	Backend
	Live     *live.Board     // what the runs of this process are doing; nil: nobody is told
	Network  bool            // the backend lets in browsers and programs that do not come through the socket
	Stopping <-chan struct{} // closed when the server stops: nobody may follow events any longer
	Logger   *slog.Logger
	Redact   func(json.RawMessage) json.RawMessage // removes secrets from answers; nil: there are none
}

// Handler answers /v1.
type Handler struct {
	http.Handler
	routes []Route
}

// Routes are all that can be asked.
func (h *Handler) Routes() []Route { return slices.Clone(h.routes) }

// Server answers /v1. Its methods give the same answers to a caller in this process, without HTTP between them: a page shows nothing,
// and changes nothing, that the API would not. Their errors are for Failure.
type Server struct {
	ledger    *ledger.Ledger
	log       *slog.Logger
	backend   Options
	routes    []Route
	heartbeat time.Duration // of streams
}

// NewServer returns a Server. It returns an error if a required option is missing.
func NewServer(o Options) (*Server, error) {
	if o.Ledger == nil || o.Backend == nil {
		return nil, errors.New("web: a ledger and a backend are needed")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}

	return &Server{ledger: o.Ledger, log: o.Logger, backend: o, heartbeat: heartbeat}, nil
}

// NewHandler returns the whole of /v1.
func NewHandler(o Options) (*Handler, error) {
	s, err := NewServer(o)
	if err != nil {
		return nil, err
	}

	s.routes = slices.Concat(s.hostRoutes(), s.jobRoutes(), s.runRoutes(), s.checkoutRoutes(), s.inboxRoutes(), s.incidentRoutes(), s.databaseRoutes(), s.ledgerRoutes(), s.pauseRoutes(), s.wakeRoutes(), s.skillRoutes(), s.signInRoutes(), s.mcpRoutes(), s.webhookRoutes(), s.workspaceRoutes(), s.askRoutes(), s.accessRoutes(), s.schemaRoutes())
	mux, methods := http.NewServeMux(), map[string][]string{}
	for _, route := range s.routes {
		mux.Handle(route.Method+" "+route.Path, s.admit(route))
		methods[route.Path] = append(methods[route.Path], route.Method)
	}
	for path, known := range methods {
		mux.Handle(path, s.otherMethod(known))
	}
	mux.Handle("/", s.answer(func(r *http.Request) (any, error) {
		return nil, &api.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("this rouse has no %s %s; is it of the same version as the command?", r.Method, r.URL.Path)}
	}))
	return &Handler{Handler: s.fresh(mux), routes: s.routes}, nil
}

// fresh loads a newer configuration before a request that may start a run. It adds a header with the first mistake of the
// configuration on disk to the response if that configuration is not in use.
func (s *Server) fresh(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		load := r.Method != http.MethodGet && r.Method != http.MethodHead && r.URL.Path != "/v1/reload"
		if problem := s.backend.ConfigProblem(r.Context(), load); problem != "" {
			w.Header().Set(api.ConfigProblemHeader, url.PathEscape(problem))
		}
		next.ServeHTTP(w, r)
	})
}

// answer turns a function's value or error into a JSON response.
func (s *Server) answer(f func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		s.write(w, r, http.StatusOK, v)
	})
}

func (s *Server) write(w http.ResponseWriter, r *http.Request, status int, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		s.log.Error("an answer could not be written as JSON", "path", r.URL.Path, "error", err)
		status, raw = http.StatusInternalServerError, []byte(`{}`)
	}
	if s.backend.Redact != nil {
		raw = s.backend.Redact(raw)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(append(raw, '\n')); err != nil && r.Context().Err() == nil {
		s.log.Warn("an answer could not be sent", "path", r.URL.Path, "error", err)
	}
}

func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	failure := s.Failure(r, err)
	setRetryAfter(w, failure)
	s.write(w, r, failure.Status, failure)
}

// setRetryAfter says when a request that was refused for now may be sent again.
func setRetryAfter(w http.ResponseWriter, failure *api.Error) {
	if failure.RetryAfter > 0 {
		w.Header().Set("Retry-After", api.RetryAfter(failure.RetryAfter))
	}
}

// Failure words an error for whoever asked, with the HTTP status that it has in the API.
func (s *Server) Failure(r *http.Request, err error) *api.Error {
	var failure *api.Error
	var bad *agentdb.Error
	var target *store.TargetError
	var answer *ledger.AnswerError
	switch {
	case errors.As(err, &failure):
	case errors.As(err, &bad):
		failure = &api.Error{Status: http.StatusUnprocessableEntity, Message: bad.Text()}
	case errors.As(err, &answer):
		failure = &api.Error{Status: http.StatusUnprocessableEntity, Message: err.Error(), Usage: true, Fields: answer.Problems}
	case errors.As(err, &target):
		failure = &api.Error{Status: http.StatusUnprocessableEntity, Message: target.Message}
	case errors.As(err, new(*ledger.WorkspaceError)):
		failure = &api.Error{Status: http.StatusUnprocessableEntity, Message: err.Error()}
	case errors.As(err, new(*ledger.ConflictError)), errors.As(err, new(*ledger.BlockedError)), errors.As(err, new(*ledger.ReadOnlyError)), errors.As(err, new(*pool.QuarantinedError)):
		failure = &api.Error{Status: http.StatusConflict, Message: err.Error()}
	case errors.Is(err, ledger.ErrNotFound):
		failure = &api.Error{Status: http.StatusNotFound, Message: err.Error(), Usage: true}
	default:
		// The cases above are errors of the client; this one is an error of the server.
		s.log.Error("a request failed", "path", r.URL.Path, "error", err)
		failure = &api.Error{Status: http.StatusInternalServerError, Message: err.Error()}
	}

	clean := *failure // a message may quote the request
	clean.Message = s.redacted(failure.Message)
	clean.Status = cmp.Or(failure.Status, http.StatusBadRequest)
	return &clean
}

// redacted returns a text without secrets, for a page.
func (s *Server) redacted(text string) string {
	raw, err := json.Marshal(text)
	if err != nil || s.backend.Redact == nil {
		return text
	}
	var clean string
	if json.Unmarshal(s.backend.Redact(raw), &clean) != nil {
		return ""
	}
	return clean
}

// usage is the error of a wrong request, with what to do instead.
func usage(format string, args ...any) error {
	return &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...), Usage: true}
}

// read decodes a JSON body, refusing unknown keys.
func read(r *http.Request, into any) error {
	dec := json.NewDecoder(r.Body)
	// A field that is misspelt, or too new for this daemon, must not be ignored silently.
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return tooLarge(large.Limit)
	}
	if err != nil {
		return usage("the request was not understood: %v", err)
	}
	return nil
}
