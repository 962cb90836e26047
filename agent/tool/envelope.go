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

// Kind says what went wrong in a call (OSA-10).
type Kind string

// The kinds.
const (
	KindInvalidArgs    Kind = "invalid_args"
	KindRejected       Kind = "rejected"
	KindUserDenied     Kind = "user_denied"
	KindTimeout        Kind = "timeout"
	KindExecutionError Kind = "execution_error"
	KindUnavailable    Kind = "unavailable"
	KindToolNotFound   Kind = "tool_not_found"
	KindNotFound       Kind = "not_found"
	KindConflict       Kind = "conflict" // somebody else has changed it since it was read
)

// retryable reports whether the same call may succeed later, unless a tool knows better.
func (k Kind) retryable() bool {
	return k != KindRejected && k != KindUserDenied && k != KindToolNotFound
}

// Envelope is the answer of a call: a result, or a kind with a message. A failure also has a result
// if the call was made and its output is worth reading.
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
	Now             string        // the time of the result, RFC 3339; "" if the model knows a recent one
	// Uncertain marks a failed call that may have taken effect. NotStarted marks one that was
	// cancelled before it began. Both are recorded as the state of the call, not in the envelope.
	Uncertain, NotStarted bool
}

// Refusal is the error of a call that fails with an envelope, which its model reads. Any other
// error of a tool means that the host is broken.
type Refusal struct{ Envelope }

func (e *Refusal) Error() string { return e.Message }

// Refuse returns a failure as an error.
func Refuse(kind Kind, format string, args ...any) *Refusal {
	return &Refusal{Failure(kind, format, args...)}
}

// RefusePath refuses the path of a call (OSA-30).
func RefusePath(kind Kind, format string, args ...any) *Refusal {
	return Refuse(kind, format, args...).WithField("path", "")
}

// WithField names the argument that was wrong and what it should have been.
func (e *Refusal) WithField(field, expected string) *Refusal {
	e.Field, e.Expected = field, expected
	return e
}

// Answered turns the error of a refused call into its envelope.
func Answered(e Envelope, err error) (Envelope, error) {
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return refusal.Envelope, nil
	}
	return e, err
}

// Success wraps a result; a plain string becomes {"text": …}. A result that cannot be written as
// JSON is a defect of the tool, and the call fails.
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

// Failure says what went wrong.
func Failure(kind Kind, format string, args ...any) Envelope {
	return Envelope{Kind: kind, Message: fmt.Sprintf(format, args...), Retryable: kind.retryable()}
}

// Cancelled answers a call of a cancelled run that has not begun. The cause is that of ctx.
func Cancelled(ctx context.Context) Envelope {
	e := Failure(KindExecutionError, "cancelled: %v", context.Cause(ctx))
	e.NotStarted = true
	return e
}

// WithField names the argument that was wrong and what it should have been.
func (e Envelope) WithField(field, expected string) Envelope {
	e.Field, e.Expected = field, expected
	return e
}

// LeftOut returns how many rows of its input the call left out because they do not fit.
func (e Envelope) LeftOut() int64 {
	const key = "rows_rejected" // of db_import
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

// encode leaves <, > and & as they are: models read the text, browsers never do.
func encode(v any) (json.RawMessage, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// Text is the envelope as a model reads it: MarshalJSON without the pictures, which the model gets as such.
func (e Envelope) Text() ([]byte, error) {
	e.Images = nil
	return e.MarshalJSON()
}

// ResultMessage makes the message that brings a call's recorded envelope to the model.
func ResultMessage(c model.Call, recorded json.RawMessage) (model.Message, error) {
	m := model.Message{Role: model.RoleTool, CallID: c.ID, Name: c.Name, Text: string(recorded)}
	// Nearly all envelopes have no pictures, and need not be decoded.
	if !bytes.Contains(recorded, []byte(`"images":`)) {
		return m, nil
	}

	var e Envelope
	if err := json.Unmarshal(recorded, &e); err != nil {
		return m, fmt.Errorf("the recorded result of %s is damaged: %w", c.Name, err)
	}
	if len(e.Images) == 0 { // the key stands somewhere within the result
		return m, nil
	}

	text, err := e.Text()
	m.Text, m.Images = string(text), e.Images
	return m, err
}

// recorded is an envelope as it is recorded, with sorted keys.
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

// MarshalJSON writes the envelope as it is recorded. Call it directly: json.Marshal would escape <, > and & in its output.
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

// UnmarshalJSON reads what MarshalJSON wrote.
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

// LedgerRefusal turns an error of the ledger that the caller can handle into a refusal.
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

// Author returns the author of what the call writes into the ledger.
func (in Invocation) Author() workspace.Author {
	return workspace.Author{Attempt: ledger.Attempt{Run: in.Run, Number: in.Attempt}, Key: in.Key}
}
