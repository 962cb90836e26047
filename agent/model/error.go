package model

import (
	"fmt"
	"time"
)

// ErrorKind says what went wrong on the model's side.
type ErrorKind string

// The kinds.
const (
	KindUnavailable     ErrorKind = "unavailable"      // no answer, or the server's own failure, or too slow
	KindRateLimited     ErrorKind = "rate_limited"     // too many requests or tokens for now
	KindAuth            ErrorKind = "auth"             // the key is missing, wrong or not allowed to
	KindBadRequest      ErrorKind = "bad_request"      // the server refuses what was asked
	KindTruncated       ErrorKind = "truncated"        // the answer broke off
	KindNonsense        ErrorKind = "nonsense"         // the answer is not what the protocol allows
	KindContextOverflow ErrorKind = "context_overflow" // the request is longer than the model reads
)

// Error is a failed turn: nothing that its stream sent before may be used.
type Error struct {
	Kind       ErrorKind
	Message    string        // a sentence; never holds a key
	Retryable  bool          // the same request may succeed later
	RetryAfter time.Duration // as the server asked; 0: it did not say
	Refused    bool          // the server said so in the place of an answer, for which nothing is paid
	Err        error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %v", e.Message, e.Err)
	}
	return e.Message
}

// Elsewhere says whether another model may answer the same request, once this one was asked
// as often as it makes sense: its server is down, overloaded, out of credit or out of order.
// A request that is refused would be refused again; a key that is wrong and an answer that is
// longer than it may be are for their owner to put right, and must not be covered up.
func (e *Error) Elsewhere() bool {
	switch e.Kind {
	case KindUnavailable, KindRateLimited, KindNonsense:
		return true
	case KindTruncated:
		return e.Retryable
	}
	return false
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }
