package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"rouse/agentdb"
	"rouse/agentdb/ledger"
)

const (
	maxBody     = 1 << 20 // bytes of a JSON request
	defaultRuns = 20
	maxRuns     = 1000
)

// Engine is what stands behind the API beside the ledger: the daemon, or a command that
// holds the home by itself. Its errors are *Error where the request was wrong.
type Engine interface {
	TimeEngine
	Status(ctx context.Context) (Status, error)
	Jobs(ctx context.Context) ([]Job, error)
	// Next lists the next n occurrences of a job, or of every job when it is "".
	Next(ctx context.Context, job string, n int) ([]Occurrence, error)
	// Fire queues a run and returns its id.
	Fire(ctx context.Context, f Fire) (int64, error)
	// Known refuses a name that neither the configuration nor history can mean, naming the nearest.
	Known(job, agent string) error
	// Database lends an agent's database until release is called.
	Database(ctx context.Context, agent string) (db *agentdb.DB, release func(), err error)
	// Databases are all of them, for what can be done with one of a known agent that cannot be
	// lent.
	Databases(agent string) (*agentdb.Pool, error)
	// Undo takes a finished run back, its files and its database.
	Undo(ctx context.Context, run ledger.Run, ask UndoAsk, progress func(done, of int64)) (Undo, error)
	// Cancelled is told of a run that ended by being cancelled while it waited.
	Cancelled(ctx context.Context, run ledger.Run)
	// Idle refuses while a run of an agent is half-way; with force one that waits is not.
	Idle(ctx context.Context, agent string, force bool) error
	// Reconsider has the queued runs looked at again: what held them may be gone.
	Reconsider()
	// Budget says what models took today.
	Budget(ctx context.Context) (Budget, error)
	Doctor(ctx context.Context) ([]Check, error)
	// Recording is everything that is kept of a finished run, as a file.
	Recording(ctx context.Context, run int64) ([]byte, error)
	// Reload reads the configuration again and puts it into force.
	Reload(ctx context.Context) (Reload, error)
	// Notify sends a text to a channel at once.
	Notify(ctx context.Context, channel, text string) error
}

// Options are the parts that the API reads.
type Options struct {
	Ledger *ledger.Ledger
	Engine Engine
	Logger *slog.Logger
}

type server struct {
	ledger *ledger.Ledger
	engine Engine
	log    *slog.Logger
}

// NewHandler returns the whole of /v1.
func NewHandler(o Options) (http.Handler, error) {
	if o.Ledger == nil || o.Engine == nil {
		return nil, errors.New("web: a ledger and an engine are needed")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &server{ledger: o.Ledger, engine: o.Engine, log: o.Logger}
	mux := http.NewServeMux()
	mux.Handle("GET /v1/status", s.answer(s.status))
	mux.Handle("GET /v1/jobs", s.answer(s.jobs))
	mux.Handle("GET /v1/next", s.answer(s.next))
	mux.Handle("GET /v1/state", s.answer(s.state))
	mux.Handle("GET /v1/budget", s.answer(s.budget))
	mux.Handle("GET /v1/doctor", s.answer(s.doctor))
	mux.Handle("POST /v1/reload", s.answer(s.reload))
	mux.Handle("POST /v1/notices", s.answer(s.notify))
	mux.Handle("GET /v1/runs", s.answer(s.runs))
	mux.Handle("POST /v1/runs", s.answer(s.fire))
	mux.Handle("GET /v1/runs/{id}", s.answer(s.run))
	mux.Handle("GET /v1/runs/{id}/recording", s.answer(s.recording))
	mux.HandleFunc("GET /v1/runs/{id}/artifacts/{artifact}", s.artifact)
	mux.Handle("POST /v1/runs/{id}/cancel", s.answer(s.cancel))
	mux.Handle("POST /v1/runs/{id}/retry", s.answer(s.retry))
	mux.HandleFunc("POST /v1/runs/{id}/undo", s.undoRun)
	mux.Handle("GET /v1/inbox", s.answer(s.inbox))
	mux.Handle("POST /v1/inbox/{id}/answer", s.answer(s.answerItem))
	mux.Handle("GET /v1/grants", s.answer(s.grants))
	mux.Handle("POST /v1/grants/{id}/revoke", s.answer(s.revoke))
	mux.Handle("GET /v1/untrusted", s.answer(s.untrusted))
	mux.Handle("POST /v1/agents/{agent}/trust", s.answer(s.trust))
	mux.HandleFunc("GET /v1/events", s.events)
	mux.Handle("GET /v1/agents/{agent}/schema", s.answer(s.schema))
	mux.Handle("POST /v1/agents/{agent}/query", s.answer(s.query))
	mux.Handle("GET /v1/agents/{agent}/stats", s.answer(s.stats))
	mux.Handle("GET /v1/agents/{agent}/changes", s.answer(s.changes))
	mux.Handle("GET /v1/agents/{agent}/views", s.answer(s.views))
	mux.Handle("POST /v1/agents/{agent}/views/{view}/run", s.answer(s.runView))
	mux.HandleFunc("POST /v1/agents/{agent}/backups", s.backup)
	mux.Handle("GET /v1/agents/{agent}/backups", s.answer(s.backups))
	mux.Handle("POST /v1/agents/{agent}/restore", s.answer(s.restoreDatabase))
	mux.Handle("POST /v1/agents/{agent}/reset", s.answer(s.resetDatabase))
	mux.Handle("POST /v1/agents/{agent}/accept", s.answer(s.acceptDatabase))
	mux.HandleFunc("POST /v1/agents/{agent}/import", s.importFile)
	mux.HandleFunc("POST /v1/agents/{agent}/export", s.exportFile)
	s.timeRoutes(mux)
	mux.Handle("/", s.answer(func(r *http.Request) (any, error) {
		return nil, &Error{Status: http.StatusNotFound, Message: fmt.Sprintf("this rouse has no %s %s; is it of the same version as the command?", r.Method, r.URL.Path)}
	}))
	return mux, nil
}

// answer turns a function's value or error into a JSON response.
func (s *server) answer(f func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		s.write(w, r, http.StatusOK, v)
	})
}

func (s *server) write(w http.ResponseWriter, r *http.Request, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil && r.Context().Err() == nil {
		s.log.Warn("an answer could not be sent", "path", r.URL.Path, "error", err)
	}
}

func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	failure := s.failure(r, err)
	s.write(w, r, failure.Status, failure)
}

// failure words an error for the client.
func (s *server) failure(r *http.Request, err error) *Error {
	var failure *Error
	var bad *agentdb.Error
	switch {
	case errors.As(err, &failure):
	case errors.As(err, &bad):
		failure = &Error{Status: http.StatusUnprocessableEntity, Message: bad.Text()}
	case errors.As(err, new(*agentdb.DamagedError)):
		failure = &Error{Status: http.StatusConflict, Message: err.Error()}
	case errors.Is(err, ledger.ErrNotFound):
		failure = &Error{Status: http.StatusNotFound, Message: err.Error(), Usage: true}
	default:
		s.log.Error("a request failed", "path", r.URL.Path, "error", err)
		failure = &Error{Status: http.StatusInternalServerError, Message: err.Error()}
	}
	if failure.Status == 0 {
		failure.Status = http.StatusBadRequest
	}
	return failure
}

// usage is a request that was wrong, with what to do instead.
func usage(format string, args ...any) error {
	return &Error{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...), Usage: true}
}

// read decodes a JSON body, refusing unknown keys.
func read(r *http.Request, into any) error {
	if t := r.Header.Get("Content-Type"); !strings.HasPrefix(t, "application/json") {
		return usage("the request must be application/json, not %q", t)
	}
	dec := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return usage("the request was not understood: %v", err)
	}
	return nil
}

// count reads a number of the query, within bounds.
func count(r *http.Request, key string, fallback, most int) (int, error) {
	text := r.URL.Query().Get(key)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, usage("%s must be a number from 1 to %d, not %q", key, most, text)
	}
	return n, nil
}

func (s *server) status(r *http.Request) (any, error) { return s.engine.Status(r.Context()) }

func (s *server) jobs(r *http.Request) (any, error) { return s.engine.Jobs(r.Context()) }

func (s *server) next(r *http.Request) (any, error) {
	n, err := count(r, "n", 5, maxRuns)
	if err != nil {
		return nil, err
	}
	job := r.URL.Query().Get("job")
	if err := s.engine.Known(job, ""); err != nil {
		return nil, err
	}
	return s.engine.Next(r.Context(), job, n)
}

func (s *server) doctor(r *http.Request) (any, error) { return s.engine.Doctor(r.Context()) }

func (s *server) reload(r *http.Request) (any, error) { return s.engine.Reload(r.Context()) }

func (s *server) notify(r *http.Request) (any, error) {
	var in Notify
	if err := read(r, &in); err != nil {
		return nil, err
	}
	return struct{}{}, s.engine.Notify(r.Context(), in.Channel, in.Text)
}

func (s *server) runs(r *http.Request) (any, error) {
	q := r.URL.Query()
	n, err := count(r, "n", defaultRuns, maxRuns)
	if err != nil {
		return nil, err
	}
	f := ledger.Filter{Job: q.Get("job"), Agent: q.Get("agent"), Trigger: ledger.Trigger(q.Get("trigger")), Outcome: ledger.Outcome(q.Get("outcome")), State: ledger.State(q.Get("state")), Limit: n}
	if text := q.Get("since"); text != "" {
		if f.Since, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return nil, usage("since must be an RFC 3339 time, not %q", text)
		}
	}
	if text := q.Get("before"); text != "" {
		if f.Before, err = runID(text); err != nil {
			return nil, err
		}
	}
	found, err := s.ledger.Runs(r.Context(), f)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		if err := s.engine.Known(f.Job, f.Agent); err != nil {
			return nil, err
		}
	}
	return s.told(r.Context(), found...)
}

func (s *server) fire(r *http.Request) (any, error) {
	var in Fire
	if err := read(r, &in); err != nil {
		return nil, err
	}
	id, err := s.engine.Fire(r.Context(), in)
	if err != nil {
		return nil, err
	}
	run, err := s.ledger.Run(r.Context(), id)
	return s.toldOne(r.Context(), run, err)
}

func (s *server) cancel(r *http.Request) (any, error) {
	id, err := runID(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	run, err := s.ledger.Run(r.Context(), id)
	if err != nil {
		return nil, err
	}
	if run.State == ledger.StateFinished {
		return nil, &Error{Status: http.StatusConflict, Message: fmt.Sprintf("run %d has already finished (%s)", id, run.Outcome)}
	}
	run, err = s.ledger.RequestCancel(r.Context(), id, "cancelled by its owner")
	if err == nil && run.State == ledger.StateFinished && run.Outcome == ledger.OutcomeCancelled {
		s.engine.Cancelled(r.Context(), run)
	}
	return s.toldOne(r.Context(), run, err)
}

func (s *server) retry(r *http.Request) (any, error) {
	id, err := runID(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	run, err := s.ledger.Run(r.Context(), id)
	if err != nil {
		return nil, err
	}
	if run.State != ledger.StateFinished {
		return nil, &Error{Status: http.StatusConflict, Message: fmt.Sprintf("run %d has not finished (%s); cancel it first, or wait", id, run.State)}
	}
	if run.Outcome == ledger.OutcomeSuccess || run.Outcome == ledger.OutcomeNothing {
		// Its calls would be answered from the record: another attempt would do nothing.
		return nil, &Error{Status: http.StatusConflict, Message: fmt.Sprintf("run %d ended in %s, so there is nothing to try again; to do the work once more: rouse run %s", id, run.Outcome, run.Job)}
	}
	run, err = s.ledger.Retry(r.Context(), id)
	return s.toldOne(r.Context(), run, err)
}

func runID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0, usage("%q is not a run; runs have numbers, see: rouse runs", text)
	}
	return id, nil
}
