package model

import (
	"fmt"
	"time"
)

// ErrorKind is the kind of a model failure.
type ErrorKind string

// Kinds of failures.
const (
	// KindUnavailable means that the server does not answer, fails, or is too slow.
	KindUnavailable ErrorKind = "unavailable"
	// KindRateLimited means too many requests or tokens for the moment.
	KindRateLimited ErrorKind = "rate_limited"
	// KindQuota means that the account's quota is used up, until a payment or a later date.
	KindQuota ErrorKind = "quota_exceeded"
	// KindAuth means that the key is missing, wrong or lacks permission.
	KindAuth ErrorKind = "auth"
	// KindBadRequest means that the server rejects the request.
	KindBadRequest ErrorKind = "bad_request"
	// KindTruncated means that the answer was cut off.
	KindTruncated ErrorKind = "truncated"
	// KindInvalidResponse means that the answer violates the API's protocol.
	KindInvalidResponse ErrorKind = "nonsense"
	// KindContextOverflow means that the request is longer than the model's context.
	KindContextOverflow ErrorKind = "context_overflow"
)

// Error is the failure of a turn. The caller must discard the text and the calls of the turn.
type Error struct {
	Kind       ErrorKind
	Message    string        // a sentence; never contains a key
	Retryable  bool          // the same request may succeed later
	RetryAfter time.Duration // delay requested by the server; 0 if none
	// Refused reports that the server rejected the request before it ran the model. Such a request
	// costs nothing.
	Refused bool
	// Missing reports that the server does not have the model or is not at this address.
	Missing bool
	Err     error
	// Window and Needed are the sizes of the context and of the rejected request, in tokens. They
	// are zero if the server does not report them.
	Window, Needed int
	// Feedback tells the model how to do better if the turn is repeated. Optional.
	Feedback string
}

// Error implements error.
func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %v", e.Message, e.Err)
	}
	return e.Message
}

// AllowsFallback reports whether a fallback model may be used after the retries are used up.
// Another model would reject a bad request too. A wrong key must not be hidden from the owner.
func (e *Error) AllowsFallback() bool {
	switch e.Kind {
	case KindUnavailable, KindRateLimited, KindQuota, KindInvalidResponse:
		return true
	case KindTruncated: // cut off by the connection, not by max_output
		return e.Retryable
	}
	return false
}

// Free reports whether the turn cost nothing, because it failed before the model began to answer.
func (e *Error) Free() bool {
	switch e.Kind {
	case KindAuth, KindRateLimited, KindQuota, KindBadRequest, KindContextOverflow:
		return true
	}
	return e.Refused
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
