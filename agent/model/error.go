package model

import (
	"fmt"
	"time"
)

// ErrorKind says what went wrong on the model's side.
type ErrorKind string

// The kinds.
const (
	KindUnavailable     ErrorKind = "unavailable"      // no answer, or an error of the server, or too slow
	KindRateLimited     ErrorKind = "rate_limited"     // too many requests or tokens for now
	KindQuota           ErrorKind = "quota_exceeded"   // what the account may use is used up: somebody has to pay, or a time has to come
	KindAuth            ErrorKind = "auth"             // the key is missing, wrong or lacks permission
	KindBadRequest      ErrorKind = "bad_request"      // the server refuses what was asked
	KindTruncated       ErrorKind = "truncated"        // the answer was cut off
	KindInvalidResponse ErrorKind = "nonsense"         // the answer breaks the API's protocol
	KindContextOverflow ErrorKind = "context_overflow" // the request is longer than the model's context
)

// Error is a failed turn. Nothing that its stream sent before may be used.
type Error struct {
	Kind       ErrorKind
	Message    string        // a sentence; never holds a key
	Retryable  bool          // the same request may succeed later
	RetryAfter time.Duration // as the server asked; 0 if it did not
	Refused    bool          // the server refused the request before the model was run, so that it costs nothing
	Missing    bool          // the server does not have the model, or is not at this address
	Err        error
	// Window and Needed are the size of the context and that of the refused request, in tokens, if the server names them.
	Window, Needed int
	// Feedback tells the model what to do better when the turn is asked again. Optional.
	Feedback string
}

// Error implements error.
func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %v", e.Message, e.Err)
	}
	return e.Message
}

// AllowsFallback reports whether a fallback model may be asked once retries are used up. Another
// model would also refuse a bad request. A wrong key must not be hidden from the owner.
func (e *Error) AllowsFallback() bool {
	switch e.Kind {
	case KindUnavailable, KindRateLimited, KindQuota, KindInvalidResponse:
		return true
	case KindTruncated: // by the connection, not by max_output
		return e.Retryable
	}
	return false
}

// Free says whether the turn failed before the model can have begun to answer, so that it cost nothing.
func (e *Error) Free() bool {
	switch e.Kind {
	case KindAuth, KindRateLimited, KindQuota, KindBadRequest, KindContextOverflow:
		return true
	}
	return e.Refused
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }
