package web

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"rouse/agentdb"
	"rouse/agentdb/pool"
	"rouse/cmd/internal/api"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/store"
	"rouse/internal/ledger/workspace"
)

// responder writes responses. All parts of a Server share one.
type responder struct {
	log    *slog.Logger
	redact func(json.RawMessage) json.RawMessage // removes secrets; nil if there are no secrets
}

// answer converts a function's value or error to a JSON response.
func (s *responder) answer(f func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		s.write(w, r, http.StatusOK, v)
	})
}

func (s *responder) write(w http.ResponseWriter, r *http.Request, status int, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		s.log.Error("an answer could not be written as JSON", "path", r.URL.Path, "error", err)
		status, raw = http.StatusInternalServerError, []byte(`{}`)
	}
	if s.redact != nil {
		raw = s.redact(raw)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(append(raw, '\n')); err != nil && r.Context().Err() == nil {
		s.log.Warn("an answer could not be sent", "path", r.URL.Path, "error", err)
	}
}

func (s *responder) fail(w http.ResponseWriter, r *http.Request, err error) {
	failure := s.Failure(r, err)
	setRetryAfter(w, failure)
	s.write(w, r, failure.Status, failure)
}

// setRetryAfter sets the Retry-After header of a response to a request that was refused for now.
func setRetryAfter(w http.ResponseWriter, failure *api.Error) {
	if failure.RetryAfter > 0 {
		w.Header().Set("Retry-After", api.RetryAfter(failure.RetryAfter))
	}
}

// Failure converts an error to the error of the API, with its HTTP status.
func (s *responder) Failure(r *http.Request, err error) *api.Error {
	var failure *api.Error
	var bad *agentdb.Error
	var target *store.TargetError
	var answer *inbox.AnswerError
	switch {
	case errors.As(err, &failure):
	case errors.As(err, &bad):
		failure = &api.Error{Status: http.StatusUnprocessableEntity, Message: bad.Text()}
	case errors.As(err, &answer):
		failure = &api.Error{Status: http.StatusUnprocessableEntity, Message: err.Error(), Usage: true, Fields: answer.Problems}
	case errors.As(err, &target):
		failure = &api.Error{Status: http.StatusUnprocessableEntity, Message: target.Message}
	case errors.As(err, new(*workspace.Error)):
		failure = &api.Error{Status: http.StatusUnprocessableEntity, Message: err.Error()}
	case errors.As(err, new(*workspace.ConflictError)), errors.As(err, new(*workspace.BlockedError)), errors.As(err, new(*ledger.ReadOnlyError)), errors.As(err, new(*pool.QuarantinedError)):
		failure = &api.Error{Status: http.StatusConflict, Message: err.Error()}
	case errors.Is(err, ledger.ErrNotFound):
		failure = &api.Error{Status: http.StatusNotFound, Message: err.Error(), Usage: true}
	default:
		// The cases above are errors of the client. This one is an error of the server.
		s.log.Error("a request failed", "path", r.URL.Path, "error", err)
		failure = &api.Error{Status: http.StatusInternalServerError, Message: err.Error()}
	}

	clean := *failure // a message may quote the request
	clean.Message = s.redacted(failure.Message)
	clean.Status = cmp.Or(failure.Status, http.StatusBadRequest)
	return &clean
}

// redacted removes secrets from a text for a page.
func (s *responder) redacted(text string) string {
	raw, err := json.Marshal(text)
	if err != nil || s.redact == nil {
		return text
	}
	var clean string
	if json.Unmarshal(s.redact(raw), &clean) != nil {
		return ""
	}
	return clean
}

// usage returns an error for an invalid request. The message includes a remedy.
func usage(format string, args ...any) error {
	return &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...), Usage: true}
}

// read decodes a JSON body and refuses unknown keys.
func read(r *http.Request, into any) error {
	dec := json.NewDecoder(r.Body)
	// Do not silently ignore a field that is misspelt or too new for this daemon.
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
