package tool

import (
	"bytes"
	"cmp"
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

	encoded json.RawMessage // Result as Success has encoded it, so that it need not be looked at again
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
	return Envelope{OK: true, Result: raw, Warnings: warnings, encoded: raw}
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

// MarshalJSON writes the envelope as it is recorded: keys sorted, and only those that apply. Call it
// directly: json.Marshal would escape <, > and & in its output.
func (e Envelope) MarshalJSON() ([]byte, error) {
	var w objectWriter
	w.text.Grow(len(e.Result) + len(e.Message) + 128)
	w.begin()

	if e.OK {
		w.addUnless(len(e.Images) == 0, "images", e.Images)
		w.addUnless(e.Now == "", "now", e.Now)
		w.add("ok", true)
		w.addRaw("result", e.Result, e.isEncoded())
		w.addUnless(e.Tool == "", "tool", e.Tool)
		w.addUnless(len(e.Warnings) == 0, "warnings", e.Warnings)
		return w.end()
	}

	w.addUnless(e.Expected == "", "expected", e.Expected)
	w.addUnless(e.Field == "", "field", e.Field)
	w.addUnless(len(e.Images) == 0, "images", e.Images)
	w.add("kind", e.Kind)
	w.add("message", e.Message)
	w.addUnless(e.Now == "", "now", e.Now)
	w.add("ok", false)
	if len(e.Result) > 0 {
		w.addRaw("result", e.Result, e.isEncoded())
	}

	w.add("retryable", e.Retryable)
	w.addUnless(e.Tool == "", "tool", e.Tool)
	w.addUnless(len(e.Warnings) == 0, "warnings", e.Warnings)

	return w.end()
}

// isEncoded reports whether the result is still what Success has encoded.
func (e Envelope) isEncoded() bool {
	n := len(e.Result)
	return n > 0 && n == len(e.encoded) && &e.Result[0] == &e.encoded[0]
}

// objectWriter writes an object key by key, in the order of the calls. A map, which encoding/json would
// sort, costs as much as all the rest.
type objectWriter struct {
	text bytes.Buffer
	json *json.Encoder
	err  error
}

func (w *objectWriter) begin() {
	w.json = json.NewEncoder(&w.text)
	w.json.SetEscapeHTML(false)
}

func (w *objectWriter) key(key string) {
	if w.text.Len() == 0 {
		w.text.WriteByte('{')
	} else {
		w.text.WriteByte(',')
	}

	w.text.WriteByte('"')
	w.text.WriteString(key)
	w.text.WriteString(`":`)
}

func (w *objectWriter) add(key string, v any) {
	w.key(key)
	if err := w.json.Encode(v); err != nil {
		w.err = err
		return
	}
	w.text.Truncate(w.text.Len() - len("\n")) // which Encode adds
}

func (w *objectWriter) addUnless(empty bool, key string, v any) {
	if !empty {
		w.add(key, v)
	}
}

// addRaw adds what is JSON already, {} when there is none; compact says that it is so for certain, and without blanks.
func (w *objectWriter) addRaw(key string, v json.RawMessage, compact bool) {
	w.key(key)
	switch {
	case len(v) == 0:
		w.text.WriteString("{}")
	case compact:
		w.text.Write(v)
	default:
		w.err = cmp.Or(json.Compact(&w.text, v), w.err)
	}
}

func (w *objectWriter) end() ([]byte, error) {
	w.text.WriteByte('}')
	return w.text.Bytes(), w.err
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
		Images    []model.Image   `json:"images"`
		Now       string          `json:"now"`
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}

	*e = Envelope{OK: m.OK, Tool: m.Tool, Result: m.Result, Warnings: m.Warnings, Kind: m.Kind, Message: m.Message, Field: m.Field, Expected: m.Expected, Retryable: m.Retryable, Images: m.Images, Now: m.Now}
	return nil
}
