package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
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
)

// retryable says whether the same call may succeed later, unless a tool knows better.
func (k Kind) retryable() bool {
	return k != KindRejected && k != KindUserDenied && k != KindToolNotFound
}

// Envelope is the uniform answer of a call: a result, or a kind with a message.
type Envelope struct {
	OK              bool
	Tool            string
	Result          json.RawMessage
	Warnings        []string
	Kind            Kind
	Message         string
	Field, Expected string
	Retryable       bool
}

// Success wraps a result; a plain string becomes {"text": …}. A result that is no JSON is
// a defect of the tool and is answered as such.
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

// WithField names the argument that was wrong and what it should have been.
func (e Envelope) WithField(field, expected string) Envelope {
	e.Field, e.Expected = field, expected
	return e
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

// MarshalJSON writes the keys sorted, and only those that the case has. Called directly it
// is the text for a model; json.Marshal escapes what HTML would read.
func (e Envelope) MarshalJSON() ([]byte, error) {
	m := map[string]any{"ok": e.OK}
	if e.Tool != "" {
		m["tool"] = e.Tool
	}
	if e.OK {
		m["result"] = e.Result
		if len(e.Result) == 0 {
			m["result"] = struct{}{}
		}
		if len(e.Warnings) > 0 {
			m["warnings"] = e.Warnings
		}
		return encode(m)
	}
	m["kind"], m["message"], m["retryable"] = e.Kind, e.Message, e.Retryable
	if e.Field != "" {
		m["field"] = e.Field
	}
	if e.Expected != "" {
		m["expected"] = e.Expected
	}
	return encode(m)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *Envelope) UnmarshalJSON(text []byte) error {
	var m struct {
		OK        bool            `json:"ok"`
		Tool      string          `json:"tool"`
		Result    json.RawMessage `json:"result"`
		Warnings  []string        `json:"warnings"`
		Kind      Kind            `json:"kind"`
		Message   string          `json:"message"`
		Field     string          `json:"field"`
		Expected  string          `json:"expected"`
		Retryable bool            `json:"retryable"`
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	*e = Envelope(m)
	return nil
}
