// Package model defines the messages between the loop and the adapters of language models.
//
// # Design
//
// The package is pure: types and one interface, no transport. A Provider answers a Request
// with a stream of Events. Text arrives as it is generated; a call is sent only when it is
// complete, so that a broken stream never executes half a call. Messages are neutral JSON: another
// adapter can continue a transcript.
//
// A failure on the model's side is an *Error, which says whether the same request may succeed later;
// a caller that gets one discards everything that the stream sent before it.
package model

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"rouse/internal/domain"
)

// Role says whose message it is.
type Role string

// The roles.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one entry of a transcript.
type Message struct {
	Role   Role            `json:"role"`
	Text   string          `json:"text,omitempty"`
	Calls  []Call          `json:"calls,omitempty"`   // of an assistant
	CallID string          `json:"call_id,omitempty"` // of a tool: the call whose envelope is Text
	Name   string          `json:"name,omitempty"`    // of a tool: its name
	Images []Image         `json:"images,omitempty"`  // of a user or a tool, in addition to Text
	Raw    json.RawMessage `json:"raw,omitempty"`     // opaque to all but the adapter that wrote it
}

// Call is a tool invocation that a model asks for.
type Call struct {
	ID   string          `json:"id"`
	Key  string          `json:"key,omitempty"` // stable across attempts; "" if the loop has to assign it
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

// Tool declares a tool to a model.
type Tool struct {
	Name, Description string
	// Schema describes the arguments, in the subset of JSON Schema that every server reads: each schema has one type, and beside it
	// only description, enum (of strings), items, properties and required. Empty means that there are no arguments.
	Schema json.RawMessage
}

// ArgumentSchema returns the schema of the arguments, which is never empty.
func (t Tool) ArgumentSchema() json.RawMessage {
	if len(t.Schema) == 0 {
		return json.RawMessage(`{"type":"object","properties":{}}`)
	}
	return t.Schema
}

// Usage counts the tokens of one turn.
type Usage struct {
	Input, Output int64
	Cached        int64 // the part of Input that was read from the provider's cache
	Written       int64 // the part of Input that was written to it, where that costs extra
	WrittenLong   int64 // the part of Written that is kept for an hour, which costs more
}

// Unreported is what a turn may have cost beyond its Usage, because its server did not say: an answer
// broke off, or never came, or was not counted.
type Unreported struct {
	Requests int   // that reached the server, and that it did not refuse
	Bytes    int   // of their answers, as far as they arrived
	Begun    Usage // what the server had said of the last one before it broke off, which is its input at best
}

// Retried are requests of one turn that failed before one succeeded.
type Retried struct {
	Times int
	Last  string // why the last of them failed; never holds a key
}

// Result is a call with its envelope as the tool gave it.
type Result struct {
	Call     Call
	Envelope json.RawMessage
}

// Request asks for one turn.
type Request struct {
	System      string
	Messages    []Message
	Tools       []Tool
	MaxOutput   int // tokens; 0 leaves it to the model
	Temperature *float64
	Results     []Result // the last step's, untrimmed
	NoTools     bool     // the answer must be text, whatever Tools holds
	KeepTools   bool     // the next run with the same tools is more than CacheMinutes away, and within CacheHour
	KeepAll     bool     // the next turn is that far
}

// Providers keep what they cache of a request for CacheMinutes, and at a higher price for CacheHour.
const (
	CacheMinutes = 5 * time.Minute
	CacheHour    = time.Hour
)

// WorthKeeping reports whether a request so long after another would find only what was cached for an hour.
func WorthKeeping(after time.Duration) bool { return after > CacheMinutes && after <= CacheHour }

// Why a model stopped, in Event.Stop. Reasons of a server that have no translation are passed on as
// they are.
const (
	StopDone    = "stop"           // the answer is complete
	StopCalls   = "tool_calls"     // it expects the results of its calls
	StopLength  = "length"         // it reached MaxOutput or its own limit
	StopFilter  = "content_filter" // the provider's content filter withheld the rest
	StopRefusal = "refusal"        // the model declined; the text says why
)

// Event is a part of an answer; one field is set.
type Event struct {
	Text  string
	Call  *Call
	Usage *Usage
	// Unreported comes once with a turn that failed, and with one that may have cost more than its Usage.
	Unreported *Unreported
	// Retried comes with a turn that succeeded after requests for it had failed.
	Retried *Retried
	Stop    string
	Raw     json.RawMessage // to be sent back to the adapter as Message.Raw of this answer
	End     *End
}

// End ends the run. No model sends it: a list of calls does, and a module.
type End struct {
	Outcome        domain.Outcome
	Summary, Error string
	Kind           string // of the error, in a few words that stay the same when the details do not; "" where nothing is known
}

// Provider answers requests. The sequence can be used once. It ends after the last event, or with an
// error, after which there is nothing.
type Provider interface {
	Stream(ctx context.Context, r Request) iter.Seq2[Event, error]
}
