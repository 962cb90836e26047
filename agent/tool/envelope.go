package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"rouse/agent/model"
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

// Envelope is the uniform answer of a call: a result, or a kind with a message. A failure has a result too
// where the call was made and what it did is worth reading: the output of a program that failed.
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
	// Uncertain marks a failure of a call that may have taken effect all the same: nobody knows. It is on record as the
	// state of the call, and not in the envelope.
	Uncertain bool
	// NotStarted marks a failure of a call that was cancelled before it began. It is on record as the state of the call,
	// and not in the envelope.
	NotStarted bool
}

// Success wraps a result; a plain string becomes {"text": …}. A result that cannot be written as JSON
// is a defect of the tool, and the call fails.
func Success(result any, warnings ...string) Envelope {
	if text, ok := result.(string); ok {
		result = textResult{text}
	}

	raw, err := encode(result)
	if err != nil {
		return Failure(KindExecutionError, "the result cannot be written as JSON: %v", err)
	}
	return Envelope{OK: true, Result: raw, Warnings: warnings}
}

// textResult is the result of a tool that gives a text.
type textResult struct {
	Text string `json:"text"`
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

// recorded is an envelope as it is recorded: the keys are sorted.
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
	if m.Kind != nil {
		e.Kind = *m.Kind
	}
	if m.Message != nil {
		e.Message = *m.Message
	}
	e.Retryable = m.Retryable != nil && *m.Retryable
	return nil
}
