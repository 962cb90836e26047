package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"rouse/agent/model"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/workspace"
)

// Kind is the category of a failed call.
type Kind string

// The kinds of failed calls.
const (
	KindInvalidArgs    Kind = "invalid_args"
	KindRejected       Kind = "rejected"
	KindUserDenied     Kind = "user_denied"
	KindTimeout        Kind = "timeout"
	KindExecutionError Kind = "execution_error"
	KindUnavailable    Kind = "unavailable"
	KindToolNotFound   Kind = "tool_not_found"
	KindNotFound       Kind = "not_found"
	KindConflict       Kind = "conflict" // changed by another writer since it was read
)

// retryable reports whether the same call may succeed later. A tool may override it in the
// envelope.
func (k Kind) retryable() bool {
	return k != KindRejected && k != KindUserDenied && k != KindToolNotFound
}

// Envelope is the answer to a call: a result, or an error kind with a message. A failure can also
// have a result, for example the output of a program.
type Envelope struct {
	OK              bool
	Tool            string
	Result          json.RawMessage
	Warnings        []string
	Kind            Kind
	Message         string
	Field, Expected string
	Retryable       bool
	Images          []model.Image // shown to the model next to the envelope
	Now             string        // time of the result, RFC 3339; "" if the model knows a recent time
	// Uncertain marks a failed call that may have taken effect. NotStarted marks a call that was
	// cancelled before it began. Both are recorded as the state of the call, not in the envelope.
	Uncertain, NotStarted bool
}

// Refusal is an error that fails a call with an envelope, which the model reads. Any other error of
// a tool means that the host is broken.
type Refusal struct{ Envelope }

func (e *Refusal) Error() string { return e.Message }

// Refuse returns a failure as an error.
func Refuse(kind Kind, format string, args ...any) *Refusal {
	return &Refusal{Failure(kind, format, args...)}
}

// RefusePath returns a failure of the argument path as an error.
func RefusePath(kind Kind, format string, args ...any) *Refusal {
	return Refuse(kind, format, args...).WithField("path", "")
}

// WithField sets the invalid argument and its expected value, and returns e.
func (e *Refusal) WithField(field, expected string) *Refusal {
	e.Field, e.Expected = field, expected
	return e
}

// Answered converts a *Refusal into its envelope. It returns other errors unchanged.
func Answered(e Envelope, err error) (Envelope, error) {
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return refusal.Envelope, nil
	}
	return e, err
}

// Success returns the envelope of a result. A string becomes {"text": …}. It returns a failure if
// the result cannot be encoded as JSON.
func Success(result any, warnings ...string) Envelope {
	if text, ok := result.(string); ok {
		result = map[string]string{"text": text}
	}

	raw, err := encode(result)
	if err != nil {
		return Failure(KindExecutionError, "the result cannot be written as JSON: %v", err)
	}
	return Envelope{OK: true, Result: raw, Warnings: warnings}
}

// Failure returns the envelope of a failed call.
func Failure(kind Kind, format string, args ...any) Envelope {
	return Envelope{Kind: kind, Message: fmt.Sprintf(format, args...), Retryable: kind.retryable()}
}

// Cancelled returns the envelope of a call that was cancelled before it began. The message contains
// the cause of ctx.
func Cancelled(ctx context.Context) Envelope {
	e := Failure(KindExecutionError, "cancelled: %v", context.Cause(ctx))
	e.NotStarted = true
	return e
}

// WithField returns e with the invalid argument and its expected value.
func (e Envelope) WithField(field, expected string) Envelope {
	e.Field, e.Expected = field, expected
	return e
}

// LeftOut returns the number of input rows that the call rejected.
func (e Envelope) LeftOut() int64 {
	const key = "rows_rejected" // in results of db_import
	if !bytes.Contains(e.Result, []byte(key)) {
		return 0
	}

	var res struct {
		Rejected int64 `json:"rows_rejected"`
	}
	if json.Unmarshal(e.Result, &res) != nil {
		return 0
	}
	return res.Rejected
}

// encode returns the JSON encoding of v. It does not escape <, > and &, because models read the
// text and browsers do not.
func encode(v any) (json.RawMessage, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// Text returns the envelope as JSON for the model. It omits the images, which are sent separately.
func (e Envelope) Text() ([]byte, error) {
	e.Images = nil
	return e.MarshalJSON()
}

// ResultMessage returns the message that contains a call's recorded envelope. It returns an error
// if the record is damaged.
func ResultMessage(c model.Call, recorded json.RawMessage) (model.Message, error) {
	m := model.Message{Role: model.RoleTool, CallID: c.ID, Name: c.Name, Text: string(recorded)}
	// Nearly all envelopes have no images and need not be decoded.
	if !bytes.Contains(recorded, []byte(`"images":`)) {
		return m, nil
	}

	var e Envelope
	if err := json.Unmarshal(recorded, &e); err != nil {
		return m, fmt.Errorf("the recorded result of %s is damaged: %w", c.Name, err)
	}
	if len(e.Images) == 0 { // the key occurs within the result
		return m, nil
	}

	text, err := e.Text()
	m.Text, m.Images = string(text), e.Images
	return m, err
}

// recorded is the recorded form of an envelope. Its keys are sorted.
type recorded struct {
	Expected  string          `json:"expected,omitempty"`
	Field     string          `json:"field,omitempty"`
	Images    []model.Image   `json:"images,omitempty"`
	Kind      *Kind           `json:"kind,omitempty"`
	Message   *string         `json:"message,omitempty"`
	Now       string          `json:"now,omitempty"`
	OK        bool            `json:"ok"`
	Result    json.RawMessage `json:"result,omitempty"`
	Retryable *bool           `json:"retryable,omitempty"`
	Tool      string          `json:"tool,omitempty"`
	Warnings  []string        `json:"warnings,omitempty"`
}

// MarshalJSON returns the recorded form of the envelope. Call it directly: json.Marshal would
// escape <, > and & in the result.
func (e Envelope) MarshalJSON() ([]byte, error) {
	out := recorded{OK: e.OK, Images: e.Images, Now: e.Now, Result: e.Result, Tool: e.Tool, Warnings: e.Warnings}
	switch {
	case !e.OK:
		out.Expected, out.Field, out.Kind, out.Message, out.Retryable = e.Expected, e.Field, &e.Kind, &e.Message, &e.Retryable
	case len(e.Result) == 0:
		out.Result = json.RawMessage("{}")
	}
	return encode(out)
}

// UnmarshalJSON parses the output of MarshalJSON.
func (e *Envelope) UnmarshalJSON(text []byte) error {
	var m recorded
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}

	*e = Envelope{OK: m.OK, Tool: m.Tool, Result: m.Result, Warnings: m.Warnings, Field: m.Field, Expected: m.Expected, Images: m.Images, Now: m.Now}
	if m.Kind != nil && m.Message != nil && m.Retryable != nil {
		e.Kind, e.Message, e.Retryable = *m.Kind, *m.Message, *m.Retryable
	}
	return nil
}

// LedgerRefusal converts a ledger error that the caller can handle into a *Refusal. It returns
// other errors unchanged.
func LedgerRefusal(err error) error {
	var wrong *workspace.Error
	var kind Kind
	switch {
	case errors.As(err, &wrong):
		return Refuse(KindInvalidArgs, "%s", wrong.Message).WithField(wrong.Field, "")
	case errors.Is(err, inbox.ErrInvalidAnswer):
		return Refuse(KindInvalidArgs, "%v", err).WithField("answer", "")
	case errors.As(err, new(*workspace.ConflictError)):
		kind = KindConflict
	case errors.As(err, new(*workspace.BlockedError)):
		kind = KindRejected
	case errors.Is(err, inbox.ErrClosed), errors.Is(err, ledger.ErrNotClaimable):
		kind = KindExecutionError
	case errors.Is(err, ledger.ErrNotFound):
		kind = KindNotFound
	default:
		return err
	}
	return Refuse(kind, "%v", err)
}

// Author returns the author of the call's writes to the ledger.
func (in Invocation) Author() workspace.Author {
	return workspace.Author{Attempt: ledger.Attempt{Run: in.Run, Number: in.Attempt}, Key: in.Key}
}
